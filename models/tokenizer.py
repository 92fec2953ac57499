"""The text tokenizer: Qwen2's byte-level BPE plus the control and pronunciation tokens of CosyVoice."""

from __future__ import annotations

import json
from pathlib import Path

from tokenizers import AddedToken, Regex, decoders, normalizers, pre_tokenizers
from tokenizers import Tokenizer as HfTokenizer
from tokenizers.models import BPE

from models.errors import ModelError

FOLDER = "CosyVoice-BlankEN"  # the text LM's config and tokenizer, inside a model folder
END_OF_PROMPT = "<|endofprompt|>"

_QWEN2 = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
_EVENTS = (
    "[breath] <strong> </strong> [noise] [laughter] [cough] [clucking] [accent] [quick_breath] <laughter> "
    "</laughter> [hissing] [sigh] [vocalized-noise] [lipsmack] [mn]"
)
# CMU phones: vowels bare and with stress 0, 1, 2; alphabetical together with the consonants.
_VOWELS = "AA AE AH AO AW AY EH ER EY IH IY OW OY UH UW"
_CONSONANTS = "B CH D DH F G HH JH K L M N NG P R S SH T TH V W Y Z ZH"
_CMU = sorted([vowel + stress for vowel in _VOWELS.split() for stress in ("", *"012")] + _CONSONANTS.split())
# Mandarin initials, and finals with their tone marks.
_PINYIN = (
    "a ai an ang ao b c ch d e ei en eng f g h i ian in ing iu ià iàn iàng iào iá ián iáng iáo iè ié "
    "iòng ióng iù iú iā iān iāng iāo iē iě iōng iū iǎ iǎn iǎng iǎo iǒng iǔ j k l m n o ong ou p q r s "
    "sh t u uang ue un uo uà uài uàn uàng uá uái uán uáng uè ué uì uí uò uó uā uāi uān uāng uē uě uī uō "
    "uǎ uǎi uǎn uǎng uǐ uǒ vè w x y z zh à ài àn àng ào á ái án áng áo è èi èn èng èr é éi én éng ér ì "
    "ìn ìng í ín íng ò òng òu ó óng óu ù ùn ú ún ā āi ān āng āo ē ēi ēn ēng ě ěi ěn ěng ěr ī īn īng ō "
    "ōng ōu ū ūn ǎ ǎi ǎn ǎng ǎo ǐ ǐn ǐng ǒ ǒng ǒu ǔ ǔn ǘ ǚ ǜ"
)

# In the order in which they are added: a token's id is its place.
_SPECIAL_TOKENS = {
    2: (*_QWEN2, END_OF_PROMPT, *_EVENTS.split()),
    3: (
        *(*_QWEN2, END_OF_PROMPT, *_EVENTS.split(), "<|endofsystem|>"),
        *(f"[{phone}]" for phone in (*_CMU, *_PINYIN.split())),
    ),
}

# How Qwen2 cuts text before merging bytes: contractions, words, single digits, punctuation, line ends, space.
_QWEN2_PIECES = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)


class Tokenizer:
    """Text to token ids and back, equal to the Hugging Face Qwen2 tokenizer after `add_special_tokens`."""

    def __init__(self, tokenizer: HfTokenizer, special_tokens: tuple[str, ...]) -> None:
        self._tokenizer = tokenizer
        self.special_tokens = special_tokens  # control tokens: never to be taken from a user's text unasked
        self.end_of_prompt_id: int = self._tokenizer.encode(END_OF_PROMPT).ids[0]

    @classmethod
    def load(cls, model_dir: str | Path, version: int) -> Tokenizer:
        """From the `CosyVoice-BlankEN` folder of a model; `version` 2 or 3 decides the special tokens.

        Raises ModelError: model_file_missing, model_config_invalid.
        """
        folder = Path(model_dir) / FOLDER
        paths = [folder / name for name in ("vocab.json", "merges.txt", "tokenizer_config.json")]
        for path in paths:
            if not path.is_file():
                raise ModelError("model_file_missing", f"{path} is missing")
        try:
            tokenizer = _qwen2(paths[0], paths[1])
            tokenizer.add_special_tokens([_special(text) for text in _declared(paths[2])])
            tokenizer.add_special_tokens([_special(text) for text in _SPECIAL_TOKENS[version]])
        except Exception as error:  # the library raises bare Exception on a damaged file
            raise ModelError("model_config_invalid", f"{folder}: the tokenizer cannot be read: {error}") from error
        return cls(tokenizer, _SPECIAL_TOKENS[version])

    def encode(self, text: str) -> list[int]:
        """The ids of `text`; special tokens written out in it become their single ids."""
        return self._tokenizer.encode(text).ids

    def decode(self, ids: list[int]) -> str:
        """The text of `ids`, special tokens written out."""
        return self._tokenizer.decode(ids, skip_special_tokens=False)

    def __len__(self) -> int:
        return self._tokenizer.get_vocab_size()


def _qwen2(vocab: Path, merges: Path) -> HfTokenizer:
    tokenizer = HfTokenizer(BPE.from_file(str(vocab), str(merges)))
    tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(_QWEN2_PIECES), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer


def _declared(path: Path) -> list[str]:
    """The added tokens of tokenizer_config.json in the order of their ids."""
    table = json.loads(path.read_text(encoding="utf-8")).get("added_tokens_decoder", {})
    return [table[key]["content"] for key in sorted(table, key=int)]


def _special(text: str) -> AddedToken:
    return AddedToken(text, special=True, normalized=False)
