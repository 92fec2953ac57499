"""German, Spanish, French, Italian and Russian text in words: numbers, dates, times, money, units, abbreviations.

One list of rules for the five; what differs is in `text.number_locales`. Number words come from num2words.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache
from typing import Any

from text.number_locales import LOCALES, Forms, Locale
from text.symbol_words import FORMULA, PHRASES, digits

_MAX_DIGITS = 15  # longer runs are identifiers, nobody reads them as billions
_NUMBER = r"(?:\d{1,3}(?:[.\u00a0 ]\d{3}){1,5}(?![\d])(?:,\d+)?|\d+(?:,\d+)?|\d+\.\d+)"
_BEFORE = r"(?<![\w.,])"
_RUSSIAN_ENDINGS = {"го": "gm", "му": "dm", "м": "pm", "я": "nf", "ю": "af", "е": "nn"}  # case and gender
_FRACTIONS = {"½": "0,5", "¼": "0,25", "¾": "0,75", "⅓": "1/3", "⅔": "2/3", "⅛": "0,125"}
_ENDS_SENTENCE = frozenset(["usw.", "etc.", "ecc.", "т.д.", "т. д.", "т.п.", "т. п.", "и др."])
Rule = tuple[re.Pattern[str], Callable[[re.Match[str]], str]]


def read_european(text: str, language: str) -> str:
    """Words and punctuation in place of digits and signs. language: de, es, fr, it or ru; text: cleaned, one line."""
    for pattern, spoken in _rules(language):
        text = pattern.sub(spoken, text)
    return re.sub(r" +([,.;:!?])", r"\1", re.sub(" {2,}", " ", text))


def read_number(run: str, language: str) -> str:
    """ "1.250" → "mille deux cent cinquante", "2,5" or "2.5" → "dos coma cinco"; "007" and endless runs in digits."""
    return _Reader(LOCALES[language]).number(run)


@lru_cache(maxsize=8)
def _rules(language: str) -> list[Rule]:
    return _Reader(LOCALES[language]).rules()


class _Reader:
    def __init__(self, locale: Locale) -> None:
        self._locale = locale
        self._language = locale.code
        self._months = locale.months.split()

    # -- numbers ---------------------------------------------------------------------------------------------------

    def cardinal(self, number: int, noun: str = "") -> str:
        """The number as it stands before `noun` ("ein Euro", "una hora", "одна минута")."""
        gender = {"gender": "f"} if self._language == "ru" and noun[-1:] in ("а", "я") and noun else {}
        words = re.sub("^одна (?=тысяча)", "", _num2words(number, self._language, **gender))
        feminine = noun.split(" ")[0][-1:] in ("a", "e")
        if not noun:
            return words
        if self._language == "de" and words.endswith("eins"):
            return words[:-1] + ("e" if feminine and noun[:3] not in ("Mei",) else "")
        if self._language == "es" and words.endswith("uno"):
            return words[:-3] + ("una" if feminine else "ún" if words.endswith("veintiuno") else "un")
        if self._language == "it" and number == 1:
            return "una" if feminine and noun[-1] == "a" else "un"
        if self._language == "fr" and words.endswith("un") and noun in ("heure", "minute", "seconde", "livre"):
            return words + "e"
        return words

    def number(self, run: str, noun: str = "") -> str:
        whole, comma, fraction = run.partition(",")
        if not comma and re.fullmatch(r"\d+\.\d+", run) and not re.fullmatch(r"\d{1,3}\.\d{3}", run):
            whole, comma, fraction = run.partition(".")
        whole = re.sub(r"[.\s]", "", whole)
        if len(whole) > _MAX_DIGITS or (len(whole) > 1 and whole[0] == "0"):
            words = digits(whole, self._language)
        else:
            words = self.cardinal(int(whole), "" if comma else noun)
        if not comma:
            return words
        if self._language == "ru" and len(fraction) <= 3 and len(whole) <= _MAX_DIGITS:
            return str(_num2words(f"{int(whole)}.{fraction}", "ru"))
        return f"{words} {self._locale.point} {digits(fraction, self._language)}"

    def _form(self, run: str, forms: Forms) -> str:
        if len(forms) < 4:
            return forms[0] if run == "1" else forms[1]
        if "," in run:
            return forms[3]
        number = int(re.sub(r"\D", "", run)[-2:])
        if number % 10 == 1 and number != 11:
            return forms[0]
        return forms[1] if number % 10 in (2, 3, 4) and number not in (12, 13, 14) else forms[2]

    def _counted(self, run: str, forms: Forms) -> str:
        return f"{self.number(run, forms[0])} {self._form(run, forms)}"

    # -- rules -----------------------------------------------------------------------------------------------------

    def rules(self) -> list[Rule]:
        locale = self._locale
        months = "|".join(self._months)
        units, money = _alternatives(locale.units), _alternatives(locale.currencies)
        nouns = "|".join({form for forms in (*locale.units.values(), *locale.currencies.values()) for form in forms})
        written: list[tuple[str, Callable[[re.Match[str]], str]]] = [
            (rf"\d{{{_MAX_DIGITS + 1},}}", lambda match: f" {digits(match[0], self._language)} "),
            (r"[½¼¾⅓⅔⅛]", lambda match: _FRACTIONS[match[0]]),
            (rf"{_BEFORE}(\d{{1,2}})([./-])(\d{{1,2}})\2(\d{{4}})(?![\w-])", self._numeric_date),
            (rf"{_BEFORE}(\d{{4}})-(\d\d)-(\d\d)(?![\w-])", self._iso_date),
            (
                rf"{_BEFORE}(\d{{1,2}}){locale.day_month}((?: de)?) ({months})(?!\w)(?:( del?|) (\d{{4}})(?!\d))?"
                + (r"(?: (?:г\.|года)(?!\w))?" if self._language == "ru" else ""),
                self._day_month,
            ),
            *self._language_rules(),
            (rf"{_BEFORE}([01]?\d|2[0-4]):([0-5]\d)(?::([0-5]\d))?(?: (?:Uhr|h)(?!\w))?(?![\d:])", self._time),
            (rf"{_BEFORE}({_NUMBER}) ?({money})(?!\w)", lambda match: self._money(match[1], match[2])),
            (rf"(?<!\w)({money}) ?({_NUMBER})", lambda match: self._money(match[2], match[1])),
            (rf"{_BEFORE}({_NUMBER}) ?[-–] ?({_NUMBER})(?=\s?(?:%|{units}|{money})|(?!\w|-\d))", self._range),
            (rf"{_BEFORE}([-−+]?)({_NUMBER}) ?%", lambda match: self._signed(match, locale.percent)),
            (
                rf"{_BEFORE}([-−]?)({_NUMBER}) ?({units})(?![\w²³/])",
                lambda match: self._signed(match, locale.units[match[3]]),
            ),
            (
                rf"(?<![\w/])({_alternatives({u: f for u, f in locale.units.items() if u[-1] in '²³'})})(?!\w)",
                lambda match: locale.units[match[1]][0],
            ),
            (rf"{_BEFORE}(\d{{1,4}}){locale.ordinal_marks}", self._ordinal),
            (rf"{_BEFORE}({_NUMBER}) ({nouns})(?!\w)", lambda match: f"{self.number(match[1], match[2])} {match[2]}"),
            (rf"{_BEFORE}(\d{{1,3}})/(\d{{1,3}})(?![\w/])", self._fraction),
            (rf"(?<!\w)({_alternatives(locale.abbreviations)})(?!\w)", self._abbreviation),
            (r"(?<![\w.)])[-−](?=\d)", lambda match: f"{locale.minus} "),
            (rf"{_NUMBER}", lambda match: self._lone(match)),
            *self._sign_rules(),
        ]
        return [(re.compile(pattern), _unbroken(spoken)) for pattern, spoken in written]

    def _language_rules(self) -> list[tuple[str, Callable[[re.Match[str]], str]]]:
        """What only one of the languages writes."""
        if self._language == "de":
            return [(rf"{_BEFORE}([01]?\d|2[0-4])[.:]([0-5]\d)() Uhr(?!\w)", self._time)]
        if self._language == "fr":
            return [(rf"{_BEFORE}([01]?\d|2[0-4]) ?h ?([0-5]\d)()(?! ?min|\w)", self._time)]
        if self._language == "it":
            return [
                (r"(?i:(?<=delle )|(?<=dalle )|(?<=alle )|(?<=ore ))([01]?\d|2[0-4])\.([0-5]\d)()(?!\d)", self._time)
            ]
        if self._language == "ru":
            return [
                (r"(?<!\w)([Вв]) (\d{4}) (?:г\.|году)(?!\w)", lambda m: f"{m[1]} {_ordinal_ru(m[2], 'pm')} году"),
                (r"(?<![\w.,])(\d{4}) (?:г\.|года)(?!\w)", lambda m: f"{_ordinal_ru(m[1], 'gm')} года"),
                (r"(?<![\w.,])(\d{4})(?= год(?!\w))", lambda m: _ordinal_ru(m[1], "nm")),
            ]
        return []

    def _sign_rules(self) -> list[tuple[str, Callable[[re.Match[str]], str]]]:
        signs, phrases = FORMULA[self._language], PHRASES[self._language]
        return [
            ("\\^2(?!\\d)|²", lambda match: f" {phrases['squared']}"),
            ("\\^3(?!\\d)|³", lambda match: f" {phrases['cubed']}"),
            (r"(?<=\s)[-–—]+(?=\s)|—|–", lambda match: ","),
            (r"[_*^|\\~`]+|(?<=\w)/(?=\w)", lambda match: " "),
            ("|".join(map(re.escape, signs)), lambda match: f" {signs[match[0]]} "),
        ]

    # -- what each rule says -----------------------------------------------------------------------------------------

    def _lone(self, match: re.Match[str]) -> str:
        words = self.number(match[0])
        if self._language == "de" and re.fullmatch(r"1[1-9]\d\d", match[0]):
            words = str(_num2words(int(match[0]), "de", to="year"))
        before, after = match.string[match.start() - 1 : match.start()], match.string[match.end() : match.end() + 1]
        return (" " if before.isalnum() else "") + words + (" " if after.isalpha() else "")

    def _signed(self, match: re.Match[str], forms: Forms) -> str:
        sign = {"-": self._locale.minus, "−": self._locale.minus, "+": PHRASES[self._language]["plus"], "": ""}[
            match[1]
        ]
        return f"{sign} {self._counted(match[2], forms)}".strip()

    def _range(self, match: re.Match[str]) -> str:
        return f"{self.number(match[1])} {self._locale.to} {match[2]}"

    def _fraction(self, match: re.Match[str]) -> str:
        return f"{self.number(match[1])} {PHRASES[self._language]['over']} {self.number(match[2])}"

    def _money(self, run: str, sign: str) -> str:
        forms = self._locale.currencies[sign]
        with_cents = re.fullmatch(r"(.*)[,.](\d\d)", run)
        if with_cents is None:
            return self._counted(run, forms)
        whole, cents = with_cents.groups()
        words = self._counted(whole, forms)
        return words if cents == "00" else f"{words}{self._locale.cents}{self.cardinal(int(cents))}"

    def _time(self, match: re.Match[str]) -> str:
        hour, minute, second = int(match[1]), match[2], match[3]
        hours = self.cardinal(hour, "heure" if self._language == "fr" else "")
        if self._language == "de" and hour == 1:
            hours = "ein"
        clock = " heure" if self._language == "fr" and hour < 2 else self._locale.o_clock
        if minute == "00":
            words = hours + clock
        elif clock:
            words = f"{hours}{clock} {self.cardinal(int(minute))}"
        else:
            zero = self._language == "ru" and minute[0] == "0"
            words = f"{hours}{self._locale.clock}{digits(minute, 'ru') if zero else self.cardinal(int(minute))}"
        return f"{words} {self.cardinal(int(second))}" if second else words

    def _day(self, day: int, before: str) -> str:
        if self._language == "de":
            words = str(_num2words(day, "de", to="ordinal"))
            article = re.search(r"(\w+) $", before)
            word = article[1].lower() if article else ""
            return words + ("" if word in ("der", "die", "das") else "n" if word in _GERMAN_DATIVE else "r")
        if self._language == "ru":
            return _ordinal_ru(str(day), "gn")
        if day == 1 and self._language in ("fr", "it"):
            return "premier" if self._language == "fr" else "primo"
        return self.cardinal(day)

    def _date(self, day: int, month: int, year: str, before: str) -> str | None:
        if not (1 <= day <= 31 and 1 <= month <= 12):
            return None
        de = "de " if self._language == "es" else ""
        return f"{self._day(day, before)} {de}{self._months[month - 1]}{self._year(year)}"

    def _year(self, year: str) -> str:
        if not year:
            return ""
        if self._language == "ru":
            return f" {_ordinal_ru(year, 'gm')} года"
        if self._language == "de":
            return f" {_num2words(int(year), 'de', to='year')}"
        return f" {self._locale.year_prefix}{self.cardinal(int(year))}"

    def _numeric_date(self, match: re.Match[str]) -> str:
        before = match.string[max(0, match.start() - 12) : match.start()]
        return self._date(int(match[1]), int(match[3]), match[4], before) or match[0]

    def _iso_date(self, match: re.Match[str]) -> str:
        before = match.string[max(0, match.start() - 12) : match.start()]
        return self._date(int(match[3]), int(match[2]), match[1], before) or match[0]

    def _day_month(self, match: re.Match[str]) -> str:
        before = match.string[max(0, match.start() - 12) : match.start()]
        month = self._months.index(match[3]) + 1
        return self._date(int(match[1]), month, match[5] or "", before) or match[0]

    def _ordinal(self, match: re.Match[str]) -> str:
        number, mark = match[1], match[0][len(match[1]) :]
        if self._language == "ru":
            return _ordinal_ru(number, _RUSSIAN_ENDINGS.get(mark[1:], "nm"))
        words = str(_num2words(int(number), self._language, to="ordinal"))
        if self._language == "de":
            before = re.search(r"(\w+) $", match.string[max(0, match.start() - 12) : match.start()])
            return words + ("n" if before and before[1].lower() in _GERMAN_DATIVE else "")
        if mark.endswith("ª"):
            return words[:-1] + "a"
        if self._language == "fr" and number == "1" and mark in ("re", "ère"):
            return "première"
        return words

    def _abbreviation(self, match: re.Match[str]) -> str:
        rest = match.string[match.end() : match.end() + 3].strip()
        ends = match[1].endswith(".") and match[1] in _ENDS_SENTENCE and (not rest or rest[0].isupper())
        return self._locale.abbreviations[match[1]] + ("." if ends else "")


_GERMAN_DATIVE = frozenset(["am", "vom", "zum", "im", "dem", "den", "beim", "ab", "seit", "bis", "des"])


def _unbroken(spoken: Callable[[re.Match[str]], str]) -> Callable[[re.Match[str]], str]:
    """A reading is never cut in two: its inner spaces are no-break ones."""

    def say(match: re.Match[str]) -> str:
        said = spoken(match)
        core = said.strip(" ")
        start = len(said) - len(said.lstrip(" "))
        return said[:start] + core.replace(" ", "\u00a0") + said[start + len(core) :]

    return say


def _alternatives(table: dict[str, Any]) -> str:
    return "|".join(re.escape(word) for word in sorted(table, key=len, reverse=True))


def _ordinal_ru(number: str, form: str) -> str:
    """form: a letter for the case (n g d a p), one for the gender (m f n)."""
    return str(_num2words(int(number), "ru", to="ordinal", case=form[0], gender=form[1]))


def _num2words(number: int | str, language: str, **how: str) -> str:
    from num2words import num2words  # slow to import, so only when one of these languages is spoken

    return str(num2words(number, lang=language, **how))
