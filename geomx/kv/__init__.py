"""The key-value store that training scripts call; see `geomx.kv.store`."""

from geomx.kv.store import Key, KVStore, create

__all__ = ["KVStore", "Key", "create"]
