"""The ASGI application of the web process: HTTP to Django, websockets to the gateway."""

import os

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "controlplane.config.settings")

from channels.routing import ProtocolTypeRouter, URLRouter
from django.core.asgi import get_asgi_application

http = get_asgi_application()  # initializes Django, which the following imports need

from controlplane.api.limits import BodyLimit  # noqa: E402
from controlplane.api.sign_ins import SignIns  # noqa: E402
from controlplane.gateway.routing import websocket_urlpatterns  # noqa: E402
from controlplane.runtime.embedded.gate import await_gate  # noqa: E402

await_gate()  # everything is imported, and the server does not listen yet

application = ProtocolTypeRouter({"http": BodyLimit(SignIns(http)), "websocket": URLRouter(websocket_urlpatterns)})
