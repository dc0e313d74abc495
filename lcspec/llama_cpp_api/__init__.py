"""The methods of llama_cpp.Llama that write text, for apps that come from llama-cpp-python."""

from lcspec.llama_cpp_api.methods import LlamaCppMethods

__all__ = ["LlamaCppMethods"]
