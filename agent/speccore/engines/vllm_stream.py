"""What vLLM streams: several tokens in one event under speculation, their ids on request, and usage beside them."""

from __future__ import annotations

from .openai_stream import stream_events

__all__ = ["stream_events"]
