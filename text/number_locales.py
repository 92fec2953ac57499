"""What the languages that are read with `text.european` call months, units, money and signs: tables only."""

from __future__ import annotations

from dataclasses import dataclass

Forms = tuple[str, ...]  # one, many; Russian: one, two to four, five and more, and a fraction of


@dataclass(frozen=True)
class Locale:
    """point: the word for a decimal comma. percent, units, currencies: the forms of a written sign.

    cents: what links money to its hundredths ("doce euros con cincuenta"). clock: what stands between hour and minute;
    o_clock: what stands behind the hour instead ("achtzehn Uhr dreißig"). ordinal_marks, day_month: patterns of what
    is written behind the number of an ordinal, of a day.
    """

    code: str
    point: str
    minus: str
    to: str
    months: str
    percent: Forms
    units: dict[str, Forms]
    currencies: dict[str, Forms]
    cents: str
    clock: str
    o_clock: str
    abbreviations: dict[str, str]
    ordinal_marks: str
    day_month: str
    year_prefix: str = ""


def _table(rows: str) -> dict[str, Forms]:
    """ "sign|one|many; ..."; one word for both where "many" is missing."""
    table = {}
    for row in rows.split(";"):
        sign, *forms = row.strip().split("|")
        table[sign] = tuple(forms if len(forms) > 1 else forms * 2)
    return table


def _words(rows: str) -> dict[str, str]:
    """ "written|said; ..." """
    return dict(row.strip().split("|") for row in rows.split(";"))


_DE = Locale(
    code="de",
    point="Komma",
    minus="minus",
    to="bis",
    months="Januar Februar März April Mai Juni Juli August September Oktober November Dezember",
    percent=("Prozent", "Prozent"),
    units=_table(
        """
        km/h|Kilometer pro Stunde; m/s|Meter pro Sekunde; km²|Quadratkilometer; m²|Quadratmeter;
        cm²|Quadratzentimeter; m³|Kubikmeter; cm³|Kubikzentimeter; km|Kilometer; cm|Zentimeter; mm|Millimeter;
        m|Meter; kg|Kilogramm; mg|Milligramm; g|Gramm; ml|Milliliter; l|Liter; L|Liter;
        kWh|Kilowattstunde|Kilowattstunden; kW|Kilowatt; W|Watt; V|Volt; Hz|Hertz; kHz|Kilohertz; MHz|Megahertz;
        GHz|Gigahertz; MB|Megabyte; GB|Gigabyte; TB|Terabyte; ms|Millisekunde|Millisekunden; min|Minute|Minuten;
        Min.|Minute|Minuten; Std.|Stunde|Stunden; h|Stunde|Stunden; s|Sekunde|Sekunden; °C|Grad Celsius;
        °F|Grad Fahrenheit; °|Grad
        """
    ),
    currencies=_table(
        """
        €|Euro; EUR|Euro; $|Dollar; USD|Dollar; £|Pfund; CHF|Franken; ¥|Yen
        """
    ),
    cents=" ",
    clock=" Uhr ",
    o_clock=" Uhr",
    abbreviations=_words(
        """
        z. B.|zum Beispiel; z.B.|zum Beispiel; d. h.|das heißt; d.h.|das heißt; u. a.|unter anderem;
        u.a.|unter anderem; bzw.|beziehungsweise; usw.|und so weiter; ca.|circa; Nr.|Nummer; Str.|Straße; Dr.|Doktor;
        Prof.|Professor; Hr.|Herr; Fr.|Frau; St.|Sankt; ggf.|gegebenenfalls; vgl.|vergleiche; inkl.|inklusive;
        exkl.|exklusive; evtl.|eventuell; Jh.|Jahrhundert; Tel.|Telefon; Mio.|Millionen; Mrd.|Milliarden;
        z. T.|zum Teil; o. Ä.|oder Ähnliches
        """
    ),
    ordinal_marks=r"\.(?= ?(?:Jahrhundert|Stock|Etage|Klasse|Platz|Mal|Geburtstag|Weltkrieg|Auflage|Liga|Kapitel|Tag))",
    day_month=r"\.",
)
_ES = Locale(
    code="es",
    point="coma",
    minus="menos",
    to="a",
    months="enero febrero marzo abril mayo junio julio agosto septiembre octubre noviembre diciembre",
    percent=("por ciento", "por ciento"),
    units=_table(
        """
        km/h|kilómetro por hora|kilómetros por hora; m/s|metro por segundo|metros por segundo;
        km²|kilómetro cuadrado|kilómetros cuadrados; m²|metro cuadrado|metros cuadrados;
        m³|metro cúbico|metros cúbicos; km|kilómetro|kilómetros; cm|centímetro|centímetros; mm|milímetro|milímetros;
        m|metro|metros; kg|kilo|kilos; mg|miligramo|miligramos; g|gramo|gramos; ml|mililitro|mililitros;
        l|litro|litros; L|litro|litros; kWh|kilovatio hora|kilovatios hora; kW|kilovatio|kilovatios; W|vatio|vatios;
        V|voltio|voltios; Hz|hercio|hercios; MB|megabyte|megabytes; GB|gigabyte|gigabytes; TB|terabyte|terabytes;
        ms|milisegundo|milisegundos; min|minuto|minutos; h|hora|horas; s|segundo|segundos;
        °C|grado Celsius|grados Celsius; °|grado|grados
        """
    ),
    currencies=_table(
        """
        €|euro|euros; EUR|euro|euros; $|dólar|dólares; USD|dólar|dólares; £|libra|libras; ¥|yen|yenes
        """
    ),
    cents=" con ",
    clock=" ",
    o_clock="",
    abbreviations=_words(
        """
        Sr.|señor; Sra.|señora; Srta.|señorita; Dr.|doctor; Dra.|doctora; Prof.|profesor; Ud.|usted; Uds.|ustedes;
        EE. UU.|Estados Unidos; EE.UU.|Estados Unidos; etc.|etcétera; p. ej.|por ejemplo; p.ej.|por ejemplo;
        n.º|número; núm.|número; pág.|página; tel.|teléfono; Avda.|avenida; aprox.|aproximadamente
        """
    ),
    ordinal_marks=r"\.?[ºª°]",
    day_month=r"",
    year_prefix="de ",
)
_FR = Locale(
    code="fr",
    point="virgule",
    minus="moins",
    to="à",
    months="janvier février mars avril mai juin juillet août septembre octobre novembre décembre",
    percent=("pour cent", "pour cent"),
    units=_table(
        """
        km/h|kilomètre heure|kilomètres heure; m/s|mètre par seconde|mètres par seconde;
        km²|kilomètre carré|kilomètres carrés; m²|mètre carré|mètres carrés; m³|mètre cube|mètres cubes;
        km|kilomètre|kilomètres; cm|centimètre|centimètres; mm|millimètre|millimètres; m|mètre|mètres; kg|kilo|kilos;
        mg|milligramme|milligrammes; g|gramme|grammes; ml|millilitre|millilitres; l|litre|litres; L|litre|litres;
        kWh|kilowattheure|kilowattheures; kW|kilowatt|kilowatts; W|watt|watts; V|volt|volts; Hz|hertz;
        Mo|mégaoctet|mégaoctets; Go|gigaoctet|gigaoctets; To|téraoctet|téraoctets; ms|milliseconde|millisecondes;
        min|minute|minutes; h|heure|heures; s|seconde|secondes; °C|degré Celsius|degrés Celsius; °|degré|degrés
        """
    ),
    currencies=_table(
        """
        €|euro|euros; EUR|euro|euros; $|dollar|dollars; USD|dollar|dollars; £|livre|livres; ¥|yen|yens
        """
    ),
    cents=" ",
    clock=" heures ",
    o_clock=" heures",
    abbreviations=_words(
        """
        M.|monsieur; Mme|madame; Mlle|mademoiselle; MM.|messieurs; Dr|docteur; Pr|professeur; etc.|et cetera;
        p. ex.|par exemple; c.-à-d.|c'est-à-dire; env.|environ; n°|numéro; N°|numéro; tél.|téléphone; av.|avenue;
        bd|boulevard
        """
    ),
    ordinal_marks=r"(?:ère|er|re|ème|e|nd|nde)(?!\w)",
    day_month=r"(?:er)?",
)
_IT = Locale(
    code="it",
    point="virgola",
    minus="meno",
    to="a",
    months="gennaio febbraio marzo aprile maggio giugno luglio agosto settembre ottobre novembre dicembre",
    percent=("per cento", "per cento"),
    units=_table(
        """
        km/h|chilometro orario|chilometri orari; m/s|metro al secondo|metri al secondo;
        km²|chilometro quadrato|chilometri quadrati; m²|metro quadrato|metri quadrati; m³|metro cubo|metri cubi;
        km|chilometro|chilometri; cm|centimetro|centimetri; mm|millimetro|millimetri; m|metro|metri; kg|chilo|chili;
        mg|milligrammo|milligrammi; g|grammo|grammi; ml|millilitro|millilitri; l|litro|litri; L|litro|litri;
        kWh|chilowattora; kW|chilowatt; W|watt; V|volt; Hz|hertz; MB|megabyte; GB|gigabyte; TB|terabyte;
        ms|millisecondo|millisecondi; min|minuto|minuti; h|ora|ore; s|secondo|secondi; °C|grado Celsius|gradi Celsius;
        °|grado|gradi
        """
    ),
    currencies=_table(
        """
        €|euro; EUR|euro; $|dollaro|dollari; USD|dollaro|dollari; £|sterlina|sterline; ¥|yen
        """
    ),
    cents=" e ",
    clock=" e ",
    o_clock="",
    abbreviations=_words(
        """
        Sig.|signor; Sig.ra|signora; Dott.|dottor; Dott.ssa|dottoressa; Prof.|professor; ecc.|eccetera; n.|numero;
        p.es.|per esempio; ad es.|ad esempio; tel.|telefono; pag.|pagina; ca.|circa
        """
    ),
    ordinal_marks=r"[ºª°]",
    day_month=r"[º°]?",
)
_RU = Locale(
    code="ru",
    point="целых",
    minus="минус",
    to="до",
    months="января февраля марта апреля мая июня июля августа сентября октября ноября декабря",
    percent=("процент", "процента", "процентов", "процента"),
    units=_table(
        """
        км/ч|километр в час|километра в час|километров в час|километра в час;
        м/с|метр в секунду|метра в секунду|метров в секунду|метра в секунду;
        км²|квадратный километр|квадратных километра|квадратных километров|квадратного километра;
        м²|квадратный метр|квадратных метра|квадратных метров|квадратного метра;
        м³|кубический метр|кубических метра|кубических метров|кубического метра;
        км|километр|километра|километров|километра; см|сантиметр|сантиметра|сантиметров|сантиметра;
        мм|миллиметр|миллиметра|миллиметров|миллиметра; м|метр|метра|метров|метра;
        кг|килограмм|килограмма|килограммов|килограмма; мг|миллиграмм|миллиграмма|миллиграммов|миллиграмма;
        г|грамм|грамма|граммов|грамма; мл|миллилитр|миллилитра|миллилитров|миллилитра; л|литр|литра|литров|литра;
        кВт|киловатт|киловатта|киловатт|киловатта; Вт|ватт|ватта|ватт|ватта; Гц|герц|герца|герц|герца;
        МБ|мегабайт|мегабайта|мегабайт|мегабайта; ГБ|гигабайт|гигабайта|гигабайт|гигабайта;
        мин|минута|минуты|минут|минуты; ч|час|часа|часов|часа; с|секунда|секунды|секунд|секунды;
        °C|градус Цельсия|градуса Цельсия|градусов Цельсия|градуса Цельсия; °|градус|градуса|градусов|градуса
        """
    ),
    currencies=_table(
        """
        руб.|рубль|рубля|рублей|рубля; руб|рубль|рубля|рублей|рубля; ₽|рубль|рубля|рублей|рубля; €|евро;
        $|доллар|доллара|долларов|доллара; £|фунт|фунта|фунтов|фунта; коп.|копейка|копейки|копеек|копейки
        """
    ),
    cents=" ",
    clock=" ",
    o_clock="",
    abbreviations=_words(
        """
        т. е.|то есть; т.е.|то есть; т. д.|так далее; т.д.|так далее; т. п.|тому подобное; т.п.|тому подобное;
        и др.|и другие; г.|год; гг.|годы; ул.|улица; д.|дом; кв.|квартира; им.|имени; тыс.|тысяч; млн|миллионов;
        млрд|миллиардов; руб.|рублей; стр.|страница; тел.|телефон; г-н|господин; г-жа|госпожа; пр.|проспект;
        см.|смотри
        """
    ),
    ordinal_marks=r"-(?:й|го|му|м|я|ю|е|ый|ой)(?!\w)",
    day_month=r"",
)
LOCALES = {locale.code: locale for locale in (_DE, _ES, _FR, _IT, _RU)}
