"""Many requests on one model: their tokens are evaluated together."""

from lcspec.batching.engine import BatchingEngine
from lcspec.batching.metrics import Metrics
from lcspec.batching.request import Finished, Listener, Request, Timings
from lcspec.batching.ticket import Ticket

__all__ = ["BatchingEngine", "Finished", "Listener", "Metrics", "Request", "Ticket", "Timings"]
