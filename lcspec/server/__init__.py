"""The OpenAI-compatible HTTP server; it needs `pip install lcspec[server]`."""
