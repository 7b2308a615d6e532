"""The trained parameters of a job: a worker stores them, users download them."""

from pathlib import Path

from django.http import StreamingHttpResponse
from django.shortcuts import get_object_or_404
from drf_spectacular.types import OpenApiTypes
from drf_spectacular.utils import OpenApiParameter, extend_schema
from rest_framework.request import Request
from rest_framework.response import Response

from controlplane.api.models_store import chunks, store_model, upload_allowed
from controlplane.api.permissions import HasRole
from controlplane.api.problems import Problem
from controlplane.api.schema import problem_responses
from controlplane.api.serializers.jobs import ModelSaved
from controlplane.api.views.base import ApiView
from controlplane.jobs.models import Job
from controlplane.jobs.services import audit, job_model_saved
from controlplane.jobs.streaming import streamed

NPZ = "application/octet-stream"


class ProcessOrRole(HasRole):
    """Workers of the job write, with their process key; users with a role read."""

    def has_permission(self, request: Request, view: "ModelView") -> bool:
        """Whether this request is permitted."""
        if request.method != "PUT":
            return super().has_permission(request, view)
        if not upload_allowed(view.kwargs["pk"], request.headers.get("Authorization", "")):
            detail = "storing a model requires: Authorization: Process worker:<rank>:<instance>:<hex key>"
            raise Problem(401, detail, headers={"WWW-Authenticate": "Process"})
        return True


class ModelView(ApiView):
    """The final parameters, as numpy's npz."""

    permission_classes = (ProcessOrRole,)

    @extend_schema(responses={(200, NPZ): OpenApiTypes.BINARY})
    def get(self, request: Request, pk: int) -> StreamingHttpResponse:
        """Download the final parameters: an array per tensor."""
        job = get_object_or_404(Job, pk=pk)
        path = Path(job.model_path)
        if not job.model_path or not path.is_file():
            raise Problem(404, f"{job} has no model: the model is stored when a job succeeds")
        headers = {
            "Content-Length": str(path.stat().st_size),
            "Content-Disposition": f'attachment; filename="job-{pk}.npz"',
        }
        return StreamingHttpResponse(streamed(request._request, chunks(path)), content_type=NPZ, headers=headers)

    @extend_schema(
        request={NPZ: OpenApiTypes.BINARY},
        auth=[],
        parameters=[OpenApiParameter("Authorization", OpenApiTypes.STR, OpenApiParameter.HEADER, required=True)],
        responses={200: ModelSaved, **problem_responses(401, 409)},
    )
    def put(self, request: Request, pk: int) -> Response:
        """Store the final parameters. Used by the job's workers, with their process key."""
        path = store_model(get_object_or_404(Job, pk=pk), request.stream or request._request)
        job_model_saved(job_id=pk, path=path)
        size = path.stat().st_size
        process = request.headers["Authorization"].rpartition(":")[0]
        audit(actor=process, action="job-model-store", subject=f"job {pk}", detail={"bytes": size})
        return Response(ModelSaved({"job": pk, "bytes": size}).data)
