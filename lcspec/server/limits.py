"""How much a request may be."""

MAX_BODY = 8 << 20
"""Bytes of a request's body."""

MAX_READING = 64
"""Requests whose bodies are read, or made prompts of, at once."""

MAX_HEADERS = 16 << 10
"""Bytes of a request's headers together."""

MAX_MESSAGES = 2048
"""Messages of a chat."""

MAX_PARTS = 1024
"""Parts of a message's content."""

MAX_TEXTS = 128
"""Texts that a request may ask for: `n` for each of its prompts."""

MAX_STOPS = 16
"""Stop strings; OpenAI takes four."""

MAX_STOP_LENGTH = 1024
"""Characters of a stop string."""

MAX_BIASES = 10_000
"""Tokens that `logit_bias` may name."""

MAX_PARAM = 100
"""Characters of the place in a request that an error names."""

MAX_TOP_LOGPROBS = 20
"""Likeliest tokens that are named at each position."""

SPARE_CONNECTIONS = 256
"""Connections beyond those of texts that are written or wait."""

TOLD_CONNECTIONS = 64
"""Connections beyond these that are told so; further ones are closed at once."""

HEADER_SECONDS = 30.0
"""How long a client may take for the headers of a request that it has begun."""

BODY_SECONDS = 60.0
"""How long a client may take for a body."""

SEND_SECONDS = 60.0
"""How long a client may read nothing of an answer before its connection is closed."""

PING_SECONDS = 15.0
"""After how long without text a stream gets a comment, so that nothing between takes it for dead."""
