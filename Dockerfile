# Three images from one file: `controlplane` (web, Celery, beat, commands; no torch), `agent` (workers and servers), and
# `training` (an attached training script, docs/attach.md: an example for your own image).
#   docker build --target controlplane .
#   docker build --target agent --build-arg TORCH_INDEX= .     # torch with CUDA instead of the CPU build

# By digest: see deploy/pin_images.py.
ARG PYTHON_IMAGE=python:3.11-slim
FROM ${PYTHON_IMAGE} AS base
ENV PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1 PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1
RUN useradd --create-home --uid 1000 paceline \
 && install -d -o paceline -g paceline /app /data /enrolment
WORKDIR /app
COPY requirements requirements

FROM base AS controlplane
RUN pip install --require-hashes -r requirements/locks/controlplane.txt && pip check
# TRACING=1 installs OpenTelemetry, for OTEL_EXPORTER_OTLP_ENDPOINT.
ARG TRACING=
RUN test -z "$TRACING" || pip install --require-hashes -r requirements/locks/tracing.txt
COPY manage.py ./
COPY controlplane controlplane
COPY frontend frontend
COPY benchmarks benchmarks
COPY paceline paceline
ENV PACELINE_DATA_DIR=/data PACELINE_STATIC_ROOT=/app/static LOG_FORMAT=json
RUN python -m compileall -q controlplane frontend benchmarks paceline \
 && PACELINE_DATA_DIR=/tmp/build python manage.py collectstatic --no-input --verbosity 0 && rm -rf /tmp/build
USER paceline
EXPOSE 8000
CMD ["python", "-m", "uvicorn", "controlplane.config.asgi:application", "--host", "0.0.0.0", "--port", "8000", "--lifespan", "off", "--no-access-log", "--log-level", "warning", "--timeout-graceful-shutdown", "2", "--no-proxy-headers", "--ws-max-size", "1048576", "--http", "controlplane.gateway.guarded:Http", "--ws", "controlplane.gateway.guarded:WebSocket"]

FROM base AS agent
ARG TORCH_INDEX=https://download.pytorch.org/whl/cpu
# All packages are checked by hash except torch, whose wheels differ by index.
RUN pip install --require-hashes -r requirements/locks/agent.txt \
 && pip install ${TORCH_INDEX:+--extra-index-url "$TORCH_INDEX"} -r requirements/agent.txt && pip check
COPY controlplane/__init__.py controlplane/__init__.py
COPY controlplane/protocol controlplane/protocol
COPY workers workers
RUN python -m compileall -q controlplane workers
USER paceline
ENTRYPOINT ["python", "-m", "workers"]
CMD ["--help"]

FROM agent AS training
COPY paceline paceline
COPY examples examples
ENV PYTHONPATH=/app
ENTRYPOINT []
CMD ["python", "examples/train_paceline.py"]
