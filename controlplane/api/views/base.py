"""What views share."""

from rest_framework.permissions import AllowAny
from rest_framework.views import APIView


class OpenView(APIView):
    """For requests that carry their own proof, or need none."""

    authentication_classes = ()
    permission_classes = (AllowAny,)
