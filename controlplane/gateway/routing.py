"""Websocket URL patterns."""

from typing import Any, cast

from channels.security.websocket import AllowedHostsOriginValidator
from channels.sessions import SessionMiddlewareStack
from django.urls import path

from controlplane.gateway.agents import agent_socket
from controlplane.gateway.pages import page_socket
from controlplane.gateway.processes import ServerSocket, WorkerSocket
from controlplane.gateway.ranks import RankSocket
from controlplane.gateway.relay import relay_socket

websocket_urlpatterns = [
    path("ws/agent", cast(Any, agent_socket)),  # django-stubs knows views only
    path("ws/relay", cast(Any, relay_socket)),
    path("ws/worker/<int:job>/<int:index>", WorkerSocket.as_asgi()),
    path("ws/rank/<int:job>/<int:index>", RankSocket.as_asgi()),
    path("ws/server/<int:job>/<int:index>", ServerSocket.as_asgi()),
    path("ws/pages", AllowedHostsOriginValidator(SessionMiddlewareStack(page_socket))),
]
