"""Training a draft head: the target writes texts, and the head learns to foresee them.

Needs PyTorch (lcspec[train]).
"""
