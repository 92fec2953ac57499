"""The one exception of this package: a model folder or checkpoint that cannot be used, with a stable code."""

from __future__ import annotations


class ModelError(Exception):
    """Something is wrong with a model's files, or with what was asked of the model.

    `code` is stable and machine readable; `message` is a sentence that names the file and what is wrong.
    Codes: model_file_missing, model_unrecognised, model_config_invalid, checkpoint_unreadable,
    checkpoint_missing_key, checkpoint_extra_key, checkpoint_shape, checkpoint_dtype, preset_invalid,
    model_input_invalid, precision_unsupported, manifest_invalid, checksum_mismatch; of a pull: repository_not_found,
    hub_refused, hub_unreachable, hub_client_missing, target_not_usable.
    """

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message

    def __reduce__(self) -> tuple[type[ModelError], tuple[str, str]]:
        return type(self), (self.code, self.message)
