"""The ASGI application of the web process: HTTP to Django, websockets to the gateway.

Importing everything makes three hundred thousand permanent objects. The garbage collector is off meanwhile:
looking through them again and again took a fifth of the CPU time of the imports.
"""

import gc
import os

gc.disable()
os.environ.setdefault("DJANGO_SETTINGS_MODULE", "controlplane.config.settings")

from channels.routing import ProtocolTypeRouter, URLRouter  # noqa: E402
from django.core.asgi import get_asgi_application  # noqa: E402

http = get_asgi_application()  # initializes Django, which the following imports need

import controlplane.config.urls  # noqa: E402, F401 - all pages, so that the first request does not import them
from controlplane.api.limits import BodyLimit  # noqa: E402
from controlplane.api.sign_ins import SignIns  # noqa: E402
from controlplane.gateway.routing import websocket_urlpatterns  # noqa: E402
from controlplane.runtime.embedded.gate import await_gate  # noqa: E402
from controlplane.runtime.garbage import collect_seldom  # noqa: E402

collect_seldom()
gc.enable()
await_gate()  # everything is imported, and the server does not listen yet

application = ProtocolTypeRouter({"http": BodyLimit(SignIns(http)), "websocket": URLRouter(websocket_urlpatterns)})
