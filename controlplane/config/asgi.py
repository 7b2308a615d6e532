"""The web process: HTTP to Django, websockets to the gateway."""

import os

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "controlplane.config.settings")

from channels.routing import ProtocolTypeRouter, URLRouter  # noqa: E402
from django.core.asgi import get_asgi_application  # noqa: E402

http = get_asgi_application()  # sets Django up, which the gateway's imports need

from controlplane.gateway.routing import websocket_urlpatterns  # noqa: E402

application = ProtocolTypeRouter({"http": http, "websocket": URLRouter(websocket_urlpatterns)})
