"""``paceline slurm``: the script that it writes, what it refuses, and both sides shown and ended."""

import os
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from controlplane.fleet.models import EnrolmentToken
from controlplane.jobs.models import Job, JobToken
from controlplane.protocol.spec import parse_spec
from paceline import Client
from paceline.cli.errors import Refusal
from paceline.cli.slurm import script
from paceline.cli.slurm.rank import placed
from paceline.cli.slurm.submit import check_address, limit_s
from paceline.errors import Unreachable
from tests.cli.conftest import Command
from tests.cli.slurm_commands import calls, program

NATIVE = """
name: digits
workload: softmax-regression
workers: 6
servers: 2
batch_size: 8
labels: {pool: a100}
stop: {iterations: 5}
"""


def script_of(out: str) -> tuple[str, Path]:
    file = Path(out.splitlines()[1].removeprefix("Slurm job 77: "))
    return file.read_text(), file


def test_the_script_is_what_one_would_write(paceline: Command, operator: str, slurm: Path) -> None:
    options = ["--nodes", "4", "--time", "24:00:00", "--partition", "long", "--sbatch=--constraint=a100", "--requeue"]
    code, out, err = paceline("slurm", "submit", *options, "--", "python", "train.py", "--name", "two words")
    assert (code, err) == (0, "")
    job = Job.objects.get()
    spec = parse_spec(job.spec)
    assert (spec.name, spec.launch, spec.workers, spec.wait_s) == ("train", "attached", 4, 604_800.0)
    text, file = script_of(out)
    folder = slurm.parent / "paceline-slurm" / f"job-{job.pk}"
    assert (
        text
        == f"""\
#!/bin/bash
# Paceline job {job.pk} (train): {operator}/jobs/{job.pk}/
# Written by paceline slurm submit; its tokens are in the files beside it.
#SBATCH --job-name=paceline-{job.pk}
#SBATCH --comment={operator}/jobs/{job.pk}/
#SBATCH --output={folder}/output-%j.txt
#SBATCH --open-mode=append
#SBATCH --requeue
#SBATCH --signal=B:USR1@120
#SBATCH --nodes=4
#SBATCH --ntasks-per-node=1
#SBATCH --time=24:00:00
#SBATCH --partition=long
#SBATCH --constraint=a100

export PACELINE_URL={operator} PACELINE_JOB={job.pk}
export PYTHONPATH="${{PYTHONPATH:+$PYTHONPATH:}}"{Path(__file__).parents[2]}
export MASTER_ADDR=$(scontrol --oneliner show node "$SLURMD_NODENAME" | grep -o 'NodeAddr=[^ ]*' | cut -d= -f2)
export MASTER_PORT=$((15000 + SLURM_JOB_ID % 15000))
paceline=({sys.executable} -m paceline)

exec "${{paceline[@]}}" slurm follow --token-file {folder}/token --requeue -- \\
    srun --kill-on-bad-exit=1 "${{paceline[@]}}" slurm rank -- \\
    python train.py --name 'two words'
"""
    )
    assert stat.S_IMODE((folder / "token").stat().st_mode) == 0o600
    assert calls(slurm)[-1] == f"sbatch --parsable {file}"
    assert subprocess.run(["bash", "-n", file], check=False).returncode == 0


def test_torchrun_is_started_once_per_node_with_the_rendezvous_endpoint(
    paceline: Command, operator: str, slurm: Path
) -> None:
    _, out, _ = paceline("slurm", "submit", "--nodes", "2", "--", "torchrun", "--nproc-per-node", "8", "train.py")
    text, _ = script_of(out)
    meeting = '--nnodes="$SLURM_NNODES" --rdzv-backend=c10d --rdzv-id="$SLURM_JOB_ID" '
    assert f'torchrun {meeting}--rdzv-endpoint="$MASTER_ADDR:$MASTER_PORT" --nproc-per-node 8 train.py\n' in text
    assert "export TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1\n" in text
    assert "#SBATCH --no-requeue\n" in text
    assert parse_spec(Job.objects.get().spec).workers == 16
    _, out, _ = paceline("slurm", "submit", "--", "torchrun", "--standalone", "train.py")
    assert script_of(out)[0].endswith("    torchrun --standalone train.py\n")
    _, out, _ = paceline("slurm", "submit", "--", "srun", "-n", "3", "python", "train.py")
    assert script_of(out)[0].endswith("-- \\\n    srun -n 3 python train.py\n")
    assert parse_spec(Job.objects.latest("pk").spec).workers == 3


def test_agents_of_a_native_job_have_a_token_and_a_label_of_their_own(
    paceline: Command, admin: str, slurm: Path, tmp_path: Path
) -> None:
    (tmp_path / "job.yaml").write_text(NATIVE)
    code, out, err = paceline("slurm", "submit", "job.yaml", "--nodes", "4", "--insecure", "--agent=--allow-code")
    assert (code, err) == (0, "")
    job, token = Job.objects.get(), EnrolmentToken.objects.get()
    labels = parse_spec(job.spec).labels
    assert (token.labels, token.uses, labels["pool"]) == (labels, 4, "a100")
    assert len(labels["slurm"]) == 12
    text, file = script_of(out)
    folder = file.parent
    assert "slurm follow --token-file" in text
    assert ' --agents -- \\\n    srun --kill-on-bad-exit=0 "${paceline[@]}" slurm rank -- \\\n' in text
    assert text.endswith(
        f'    "${{paceline[@]}}" join {admin} @{folder}/enrolment-token --name slurm-job{job.pk} '
        "--host '{address}' --slots 2 "
        f"--server-slots 1 --state-dir {folder}/agents --checkpoint-dir {folder.parent}/checkpoints --insecure "
        "--allow-code\n"
    )
    assert stat.S_IMODE((folder / "enrolment-token").stat().st_mode) == 0o600
    assert JobToken.objects.filter(job=job).exists()


def test_the_path_of_the_interpreter_may_have_spaces(tmp_path: Path) -> None:
    folder = tmp_path / "my environment"
    folder.mkdir()
    program(folder, "python", 'echo "$@"')
    plan = script.Plan(
        job=7,
        name="digits",
        page="https://example.org/jobs/7/",
        url="https://example.org",
        folder=tmp_path,
        directives=(),
        step=(),
        command=("srun", "python", "train.py"),
        python=str(folder / "python"),
    )
    file = tmp_path / "job.sh"
    file.write_text(script.text(plan))
    stubs = {"PATH": f"{tmp_path}:{os.environ['PATH']}", "SLURM_JOB_ID": "1", "SLURMD_NODENAME": "here"}
    program(tmp_path, "scontrol", "echo NodeAddr=127.0.0.1")
    done = subprocess.run(["bash", str(file)], env=stubs, capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.split() == [
        *("-m", "paceline", "slurm", "follow", "--token-file", str(plan.token_file), "--"),
        *("srun", "python", "train.py"),
    ]


def test_tokens_are_closed_to_others_where_their_folder_and_files_were_there_before(
    paceline: Command, admin: str, slurm: Path, tmp_path: Path
) -> None:
    (tmp_path / "job.yaml").write_text(NATIVE)
    submit = ("slurm", "submit", "job.yaml")
    folder = script_of(paceline(*submit)[1])[1].parent
    left = folder.with_name(f"job-{Job.objects.get().pk + 1}")  # of a control plane whose numbers began anew
    left.mkdir(mode=0o777)
    left.chmod(0o777)
    for name in ("token", "enrolment-token", "job.sh"):
        (left / name).write_text("before")
        (left / name).chmod(0o666)
    with (left / "token").open() as reader:
        code, out, err = paceline(*submit)
        assert (code, err, script_of(out)[1].parent) == (0, "", left)
        assert reader.read() == "before"
    modes = {path.name: oct(stat.S_IMODE(path.stat().st_mode)) for path in (left, *left.iterdir())}
    assert modes == {left.name: "0o700", "token": "0o600", "enrolment-token": "0o600", "job.sh": "0o600"} | {
        "slurm-job": "0o600"
    }


def test_a_folder_that_is_another_users_gets_no_token(
    paceline: Command, operator: str, slurm: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stopped: list[str] = []
    monkeypatch.setattr(Client, "stop", lambda self, number, *, reason="": stopped.append(reason))
    monkeypatch.setattr("os.geteuid", lambda: 12_345)
    code, _, err = paceline("slurm", "submit", "--", "python", "train.py")
    (folder,) = (slurm.parent / "paceline-slurm").iterdir()
    assert code == 2
    assert err.startswith(f"{folder}: found a folder of user {os.getuid()}, expected a folder of your own")
    assert [*folder.iterdir()] == []
    assert stopped == [f"it was not submitted to Slurm: {err.strip()}"]


def test_agents_on_several_nodes_listen_to_each_other_and_encrypt(
    paceline: Command, admin: str, slurm: Path, tmp_path: Path
) -> None:
    (tmp_path / "job.yaml").write_text(NATIVE)
    code, out, err = paceline("slurm", "submit", "job.yaml", "--nodes", "4")
    assert (code, err) == (0, "")
    text, _ = script_of(out)
    assert "--host '{address}'" in text
    assert "--insecure" not in text


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((), "paceline slurm submit: found neither a spec nor a command"),
        (("sums.yaml",), "--nodes 2: found communication: all-reduce in sums.yaml, which is not encrypted"),
        (("job.yaml", "--requeue"), "--requeue: found no checkpoint in job.yaml"),
        (("job.yaml", "--", "python", "x.py"), "job.yaml: found launch: native and a command"),
        (("mine.yaml",), "mine.yaml: found launch: attached without a command"),
        (("agents.yaml", "--", "python", "x.py"), "agents.yaml: found command, which Paceline's agents start"),
        (("nowhere.yaml",), "nowhere.yaml: cannot be read"),
        (("--ntasks-per-node", "2", "--", "torchrun", "x.py"), "--ntasks-per-node: found 2, expected 1 with torchrun"),
        (("--time", "2", "--requeue", "--", "x"), "--time 2 --requeue: found 120 s of notice"),
        (("--partition", "long,nope", "--", "x"), "--partition: found 'nope', expected one of long, short"),
    ],
)
def test_what_does_not_go_together_is_refused_with_the_cure(
    paceline: Command, operator: str, slurm: Path, tmp_path: Path, arguments: tuple[str, ...], said: str
) -> None:
    (tmp_path / "job.yaml").write_text(NATIVE)
    (tmp_path / "mine.yaml").write_text("name: mine\nlaunch: attached\n")
    (tmp_path / "agents.yaml").write_text("name: mine\nlaunch: attached\ncommand: [python, x.py]\n")
    (tmp_path / "sums.yaml").write_text(NATIVE.replace("servers: 2", "servers: 0\ncommunication: all-reduce"))
    code, _, err = paceline("slurm", "submit", "--nodes", "2", *arguments)
    assert (code, err.startswith(said)) == (2, True), err
    assert not Job.objects.exists()


def test_agents_take_an_admin(paceline: Command, operator: str, slurm: Path, tmp_path: Path) -> None:
    (tmp_path / "job.yaml").write_text(NATIVE)
    code, _, err = paceline("slurm", "submit", "job.yaml")
    assert (code, "requires the role admin" in err, Job.objects.count()) == (2, True, 0)


def test_a_job_that_slurm_refuses_is_ended_here_with_its_tokens(
    paceline: Command, admin: str, slurm: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stopped: list[str] = []
    monkeypatch.setattr(Client, "stop", lambda self, number, *, reason="": stopped.append(reason))
    (tmp_path / "job.yaml").write_text(NATIVE)
    program(slurm, "sbatch", "echo 'sbatch: error: Batch job submission failed: No credit' >&2; exit 1")
    code, _, err = paceline("slurm", "submit", "job.yaml")
    assert (code, err) == (2, "sbatch refused: Batch job submission failed: No credit\n")
    assert stopped == [f"it was not submitted to Slurm: {err.strip()}"]
    assert EnrolmentToken.objects.get().revoked_at is not None


@pytest.mark.parametrize("fails", ["submit", "new_job_token"])
def test_what_the_control_plane_refuses_leaves_no_enrolment_token_and_no_job(
    paceline: Command, admin: str, slurm: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fails: str
) -> None:
    def refuse(*_: Any, **__: Any) -> None:
        raise Unreachable("it is gone")

    stopped: list[int] = []
    monkeypatch.setattr(Client, "stop", lambda self, number, *, reason="": stopped.append(number))
    monkeypatch.setattr(Client, fails, refuse)
    (tmp_path / "job.yaml").write_text(NATIVE)
    code, _, err = paceline("slurm", "submit", "job.yaml")
    assert (code, "it is gone" in err) == (3, True)
    assert stopped == list(Job.objects.values_list("pk", flat=True))
    assert EnrolmentToken.objects.get().revoked_at is not None
    assert "sbatch" not in (slurm / "calls").read_text()


def test_an_address_that_ranks_would_refuse_is_refused_before() -> None:
    for url in ("https://paceline.example.org", "http://127.0.0.1:8000"):
        check_address(url, insecure=False)
    check_address("http://10.1.2.3:8000", insecure=True)
    with pytest.raises(Refusal, match="is not encrypted and not on this machine"):
        check_address("http://10.1.2.3:8000", insecure=False)


def test_without_slurm_the_refusal_reports_where_to_run_it(
    paceline: Command, operator: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    code, _, err = paceline("slurm", "submit", "--", "python", "train.py")
    assert (code, err.startswith("sinfo: found no such command on the PATH, expected Slurm's")) == (2, True)
    assert not Job.objects.exists()


def test_where_slurm_is_installed_but_no_cluster_is_known_the_refusal_reports_where_to_run_it(
    paceline: Command, operator: str, slurm: Path
) -> None:
    said = "sinfo: error: resolve_ctls_from_dns_srv: Unknown host\n"
    said += "sinfo: fatal: Could not establish a configuration source"
    program(slurm, "sinfo", f"printf '{said}\n' >&2; exit 1")
    code, _, err = paceline("slurm", "submit", "--", "python", "train.py")
    assert code == 2
    assert err.startswith("sinfo: found no cluster, neither in SLURM_CONF nor /etc/slurm nor by DNS, expected one; run")
    assert "a login node of the cluster" in err
    assert not Job.objects.exists()


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("10", 600),
        ("10:30", 630),
        ("1:00:05", 3605),
        ("2-0", 172_800),
        ("1-2:03", 93_780),
        ("1-2:03:04", 93_784),
        ("UNLIMITED", None),
        ("1:2:3:4", None),
    ],
)
def test_a_time_limit_is_read_as_sbatch_reads_it(text: str, seconds: float | None) -> None:
    assert limit_s(text) == seconds


def test_the_place_of_a_task_is_put_into_torchs_words() -> None:
    known = {"SLURM_PROCID": "3", "SLURM_NTASKS": "8", "SLURM_LOCALID": "1", "RANK": "0"}
    assert placed(known) == known | {"RANK": "3", "WORLD_SIZE": "8", "LOCAL_RANK": "1"}
    assert placed({"HOME": "x"}) == {"HOME": "x"}


def test_both_sides_are_shown_and_ended(paceline: Command, operator: str, slurm: Path) -> None:
    paceline("slurm", "submit", "--", "python", "train.py")
    job = Job.objects.get()
    rows = [
        f"77|PENDING|4|Resources|paceline-{job.pk}|{operator}/jobs/{job.pk}/",
        "78|RUNNING|4|None|paceline-1|https://elsewhere/jobs/1/",
        "79|RUNNING|1|None|other|(null)",
    ]
    program(slurm, "squeue", f"printf '{chr(10).join(rows)}\\n'")
    _, out, _ = paceline("slurm", "status")
    heads, row = out.splitlines()
    assert heads.split() == ["job", "here", "Slurm", "there", "nodes"]
    assert row.split()[:5] == [str(job.pk), "submitted", "77", "pending", "4"]
    assert row.rstrip().endswith("Slurm: Resources"), "Slurm starts its ranks: nobody has to be told to"
    started = f"77|RUNNING|4|None|paceline-{job.pk}|{operator}/jobs/{job.pk}/"
    program(slurm, "squeue", f"printf '{started}\\n'")
    _, out, _ = paceline("slurm", "status")
    assert out.rstrip().endswith("Slurm has started it: its ranks connect when they call paceline.attach()")
    program(slurm, "squeue", f"printf '{chr(10).join(rows)}\\n'")
    code, out, err = paceline("slurm", "cancel", str(job.pk))
    assert (code, err) == (0, "")
    assert "scancel --state=PENDING 77" in calls(slurm)
    program(slurm, "squeue", ":")
    _, out, _ = paceline("slurm", "status", str(job.pk))
    assert "not in its queue" in out


def test_jobs_of_the_user_that_are_none_of_ours_are_left_alone_whatever_their_names(
    paceline: Command, operator: str, slurm: Path
) -> None:
    paceline("slurm", "submit", "--", "python", "train.py")
    job = Job.objects.get()
    rows = [
        "79|RUNNING|2K|None|big|(null)",
        "80|PENDING|1|Priority|sweep|lr=0.1|two|parts",
        f"77|PENDING|2K|(Nodes down|drained)|paceline-{job.pk}|{operator}/jobs/{job.pk}/",
        "81|RUNNING|1|None|a name",
        "in two lines|(null)",
        "82|RUNNING|1|None|paceline-x|(null)",
    ]
    (slurm / "rows").write_text("\n".join(rows) + "\n")
    program(slurm, "squeue", f"cat '{slurm}/rows'")
    code, out, err = paceline("slurm", "status")
    assert (code, err) == (0, "")
    (_, row) = out.splitlines()
    assert row.split()[:5] == [str(job.pk), "submitted", "77", "pending", "2K"]
    assert row.rstrip().endswith("Slurm: (Nodes down|drained)")
    assert paceline("slurm", "cancel", str(job.pk))[0] == 0
    assert "scancel --state=PENDING 77" in calls(slurm)
