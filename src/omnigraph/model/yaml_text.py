"""YAML that people write: jobs, settings, decisions, policies."""

from __future__ import annotations

from typing import Any

import yaml

from omnigraph.errors import InputError


class _Loader(yaml.SafeLoader):
    """YAML in which a key that comes twice is an error: the second would silently win."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:  # noqa: FBT001, FBT002 - PyYAML's signature
        keys = [self.construct_object(key, deep=True) for key, _ in node.value]
        for at, key in enumerate(keys):
            if key in keys[:at]:
                raise yaml.constructor.ConstructorError(
                    None, None, f"the key '{key}' comes twice", node.value[at][0].start_mark
                )
        return super().construct_mapping(node, deep=deep)


def read_yaml(text: str, *, path: str) -> Any:
    """What the text of a file says, or `InputError` that names the file and the place."""
    try:
        return yaml.load(text, Loader=_Loader)  # noqa: S506 - it is a SafeLoader
    except (yaml.YAMLError, TypeError, ValueError, RecursionError) as cause:
        # A time that there cannot be is a ValueError.
        raise InputError(f"'{path}' is not valid YAML: {cause}", path=path) from cause
