"""GET /v1/models: the model there is."""

import time
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from lcspec.server.errors import ApiError
from lcspec.server.service import Service

_STARTED = int(time.time())


async def list_models(request: Request) -> Response:
    """Return all models, which is one."""
    return JSONResponse({"object": "list", "data": [_described(request.app.state.service)]})


async def show_model(request: Request) -> Response:
    """Return the model by its name.

    Raises:
        ApiError: it has another one.
    """
    service: Service = request.app.state.service
    name = request.path_params["name"]
    if name != service.settings.name:
        raise ApiError(
            404, f"there is no model of that name; this server has {service.settings.name}", "model_not_found"
        )
    return JSONResponse(_described(service))


def _described(service: Service) -> dict[str, Any]:
    engine = service.engine
    target = engine.target
    meta = {
        "n_vocab": target.n_vocab,
        "n_ctx": engine.n_ctx,
        "n_ctx_train": target.n_ctx_train,
        "n_params": target.n_params,
        "size": target.size,
    }
    return {"id": service.settings.name, "object": "model", "created": _STARTED, "owned_by": "lcspec", "meta": meta}
