"""``manage.py alerts``: lists alerts, and exports, checks and imports their rules as YAML."""

import json
import sys
from argparse import ArgumentParser
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from controlplane.alerts.evaluation import Stage
from controlplane.alerts.models import Alert, Delivery
from controlplane.alerts.rules import DEFAULT_RULES, Rule, parse_rules
from controlplane.alerts.services import rules_import
from controlplane.api.serializers.alerts import AlertRow
from controlplane.api.views.alert_rules import rules_yaml, yaml_of
from controlplane.api.yaml import NoYaml, YamlRefused, load_yaml
from controlplane.jobs.documents import check_plain
from controlplane.people.actors import command_line
from controlplane.protocol.parts import SpecError


class Command(BaseCommand):
    """Access to this command implies access to the database; an import is audited as over REST."""

    help = "List firing alerts (list); write, check or import rules as YAML (defaults, export, check, import)."
    requires_system_checks = []

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Add the subcommand and the file."""
        parser.add_argument("do", choices=("list", "defaults", "export", "check", "import"))
        parser.add_argument(
            "file", nargs="?", help="file to read or write; -: standard input; default for exports: print"
        )
        parser.add_argument("--json", action="store_true", dest="as_json", help="print one JSON document")

    def handle(self, *args: Any, do: str, file: str | None, as_json: bool, **options: Any) -> None:
        """Run the subcommand."""
        if do == "list":
            self._list(as_json=as_json)
        elif do in ("defaults", "export"):
            self._write(file, yaml_of(DEFAULT_RULES) if do == "defaults" else rules_yaml())
        else:
            rules = _read(file)
            if do == "check":
                self.stdout.write(f"{len(rules)} rules are valid")
                return
            try:
                done = rules_import(rules=rules, actor=command_line())
            except SpecError as error:
                raise CommandError(f"{error}; nothing was changed") from None
            found = {name: getattr(done, name) for name in ("created", "changed", "removed", "same")}
            self.stdout.write(json.dumps(found) if as_json else _in_words(found))

    def _list(self, *, as_json: bool) -> None:
        rows = Alert.objects.filter(stage=Stage.FIRING).order_by("-fired_at")
        failed = Delivery.objects.filter(state=Delivery.State.FAILED).count()
        if as_json:
            self.stdout.write(json.dumps({"firing": AlertRow(rows, many=True).data, "failed_deliveries": failed}))
            return
        quiet = {False: "", True: "  (silenced)"}
        lines = [f"{row.severity}  {row.rule_name}  {row.summary}{quiet[row.silenced]}" for row in rows]
        self.stdout.write("\n".join([f"{len(lines)} firing, {failed} failed deliveries", *lines]))

    def _write(self, file: str | None, text: str) -> None:
        if file is None or file == "-":
            self.stdout.write(text, ending="")
            return
        try:
            Path(file).write_text(text)
        except OSError as error:
            raise CommandError(f"cannot write {file} ({error.strerror})") from None


def _read(file: str | None) -> list[Rule]:
    if file is None:
        raise CommandError("found no file, expected the YAML file of rules, or - for standard input")
    try:
        text = sys.stdin.read() if file == "-" else Path(file).read_text()
        document = load_yaml(text)
        check_plain(document)
        return parse_rules(document)
    except (OSError, UnicodeDecodeError) as error:
        raise CommandError(f"cannot read {file} ({getattr(error, 'strerror', None) or error})") from None
    except (YamlRefused, NoYaml, SpecError) as error:
        raise CommandError(f"{file}: {error}") from None


def _in_words(found: dict[str, list[str]]) -> str:
    return "\n".join(f"{name}: {', '.join(rules) or '-'}" for name, rules in found.items())
