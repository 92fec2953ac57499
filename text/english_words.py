"""What English abbreviations, units, currencies and symbols are called."""

from __future__ import annotations

_MONTHS = "January February March April May June July August September October November December"
MONTHS = _MONTHS.split()
MONTH_NUMBERS = {
    **{name: number for number, name in enumerate(MONTHS, 1)},
    **{name[:3]: number for number, name in enumerate(MONTHS, 1)},
    "Sept": 9,
}

# After these a number is no count of things: "in 2024 and", "5 kg of"; before others it is: "2024 files".
_FUNCTION_WORDS = (
    "a about after again against all also although an and are as at be because been before but by can could did "
    "do does during each for from had has have he her his how i if in into is it its just may might more most "
    "must my no nor not now of off on only or our out over she should since so some than that the their them "
    "then there these they this those through to today tomorrow too under until up very was we were what when "
    "where which while who why will with would yesterday yet you your"
)
FUNCTION_WORDS = frozenset(_FUNCTION_WORDS.split())
_YEAR_CUES = (
    "in since by until till from of year years before after during to and late early mid around circa class "
    "summer winter spring autumn fall season born died founded established copyright between the"
)
YEAR_CUES = frozenset(_YEAR_CUES.split())

TITLES = {
    "Mr": "Mister",
    "Mrs": "Missus",
    "Ms": "Miz",
    "Messrs": "Messieurs",
    "Prof": "Professor",
    "Gen": "General",
    "Gov": "Governor",
    "Sen": "Senator",
    "Rep": "Representative",
    "Capt": "Captain",
    "Lt": "Lieutenant",
    "Col": "Colonel",
    "Sgt": "Sergeant",
    "Rev": "Reverend",
    "Hon": "Honorable",
    "Pres": "President",
    "Mt": "Mount",
    "Ft": "Fort",
}
# Written with a dot; the dot ends the sentence as well when a new one follows.
ABBREVIATIONS = {
    "Jr": "Junior",
    "Sr": "Senior",
    "Inc": "Incorporated",
    "Ltd": "Limited",
    "Corp": "Corporation",
    "Co": "Company",
    "Bros": "Brothers",
    "Ave": "Avenue",
    "Blvd": "Boulevard",
    "Rd": "Road",
    "Ln": "Lane",
    "Hwy": "Highway",
    "Apt": "Apartment",
    "Bldg": "Building",
    "Dept": "Department",
    "dept": "department",
    "Univ": "University",
    "Hosp": "Hospital",
    "Govt": "Government",
    "govt": "government",
    "approx": "approximately",
    "est": "established",
    "vol": "volume",
    "Vol": "Volume",
    "Fig": "Figure",
    "fig": "figure",
    "ext": "extension",
    "Ext": "Extension",
    "tel": "telephone",
    "Tel": "Telephone",
    "max": "maximum",
    "min": "minimum",
    "avg": "average",
    "incl": "including",
    "excl": "excluding",
    "misc": "miscellaneous",
    "cf": "compare",
    "etc": "et cetera",
    "Etc": "Et cetera",
    "et al": "and others",
    "Mon": "Monday",
    "Tue": "Tuesday",
    "Tues": "Tuesday",
    "Wed": "Wednesday",
    "Thu": "Thursday",
    "Thur": "Thursday",
    "Thurs": "Thursday",
    "Fri": "Friday",
    "Sat": "Saturday",
    "Sun": "Sunday",
    **{name[:3]: name for name in MONTHS if name != "May"},
    "Sept": "September",
}

# unit as written → (one, many)
UNITS = {
    "km": ("kilometer", "kilometers"),
    "cm": ("centimeter", "centimeters"),
    "mm": ("millimeter", "millimeters"),
    "m": ("meter", "meters"),
    "kg": ("kilogram", "kilograms"),
    "mg": ("milligram", "milligrams"),
    "g": ("gram", "grams"),
    "lb": ("pound", "pounds"),
    "lbs": ("pound", "pounds"),
    "oz": ("ounce", "ounces"),
    "ft": ("foot", "feet"),
    "yd": ("yard", "yards"),
    "mi": ("mile", "miles"),
    "l": ("liter", "liters"),
    "L": ("liter", "liters"),
    "ml": ("milliliter", "milliliters"),
    "mL": ("milliliter", "milliliters"),
    "mph": ("mile per hour", "miles per hour"),
    "kph": ("kilometer per hour", "kilometers per hour"),
    "km/h": ("kilometer per hour", "kilometers per hour"),
    "m/s": ("meter per second", "meters per second"),
    "Hz": ("hertz", "hertz"),
    "kHz": ("kilohertz", "kilohertz"),
    "MHz": ("megahertz", "megahertz"),
    "GHz": ("gigahertz", "gigahertz"),
    "KB": ("kilobyte", "kilobytes"),
    "kB": ("kilobyte", "kilobytes"),
    "MB": ("megabyte", "megabytes"),
    "GB": ("gigabyte", "gigabytes"),
    "TB": ("terabyte", "terabytes"),
    "Mbps": ("megabit per second", "megabits per second"),
    "Gbps": ("gigabit per second", "gigabits per second"),
    "h": ("hour", "hours"),
    "hr": ("hour", "hours"),
    "hrs": ("hour", "hours"),
    "min": ("minute", "minutes"),
    "mins": ("minute", "minutes"),
    "sec": ("second", "seconds"),
    "secs": ("second", "seconds"),
    "s": ("second", "seconds"),
    "ms": ("millisecond", "milliseconds"),
    "W": ("watt", "watts"),
    "kW": ("kilowatt", "kilowatts"),
    "MW": ("megawatt", "megawatts"),
    "kWh": ("kilowatt hour", "kilowatt hours"),
    "V": ("volt", "volts"),
    "mAh": ("milliamp hour", "milliamp hours"),
    "dB": ("decibel", "decibels"),
    "px": ("pixel", "pixels"),
    "fps": ("frame per second", "frames per second"),
    "sq ft": ("square foot", "square feet"),
    "sq mi": ("square mile", "square miles"),
    "°C": ("degree Celsius", "degrees Celsius"),
    "° C": ("degree Celsius", "degrees Celsius"),
    "°F": ("degree Fahrenheit", "degrees Fahrenheit"),
    "° F": ("degree Fahrenheit", "degrees Fahrenheit"),
    "°": ("degree", "degrees"),
}

# currency as written → (one, many, one hundredth, many hundredths)
CURRENCIES = {
    "$": ("dollar", "dollars", "cent", "cents"),
    "US$": ("dollar", "dollars", "cent", "cents"),
    "USD": ("dollar", "dollars", "cent", "cents"),
    "£": ("pound", "pounds", "penny", "pence"),
    "GBP": ("pound", "pounds", "penny", "pence"),
    "€": ("euro", "euros", "cent", "cents"),
    "EUR": ("euro", "euros", "cent", "cents"),
    "¥": ("yen", "yen", "sen", "sen"),
    "Rs.": ("rupee", "rupees", "paisa", "paise"),
    "Rs": ("rupee", "rupees", "paisa", "paise"),
    "₹": ("rupee", "rupees", "paisa", "paise"),
    "₩": ("won", "won", "jeon", "jeon"),
    "₽": ("ruble", "rubles", "kopek", "kopeks"),
}
MAGNITUDES = {
    "k": "thousand",
    "K": "thousand",
    "m": "million",
    "M": "million",
    "mn": "million",
    "b": "billion",
    "B": "billion",
    "bn": "billion",
}

FRACTION_PARTS = {2: "half", 3: "third", 4: "quarter", 5: "fifth", 6: "sixth", 8: "eighth", 10: "tenth"}
FRACTION_CHARACTERS = {"½": "1/2", "⅓": "1/3", "⅔": "2/3", "¼": "1/4", "¾": "3/4", "⅕": "1/5", "⅛": "1/8"}

SYMBOLS = {
    "&": "and",
    "@": "at",
    "+": "plus",
    "=": "equals",
    "%": "percent",
    "#": "hash",
    "<": "less than",
    ">": "greater than",
    "≤": "less than or equal to",
    "≥": "greater than or equal to",
    "≠": "not equal to",
    "≈": "approximately equal to",
    "±": "plus or minus",
    "×": "times",
    "÷": "divided by",
    "√": "square root of",
    "∞": "infinity",
    "°": "degrees",
    "©": "copyright",
    "§": "section",
    "$": "dollar",
    "£": "pound",
    "€": "euro",
    "¥": "yen",
    "→": "to",
    "²": "squared",
    "³": "cubed",
    "^": "to the power of",
    "/": "slash",
    "µ": "micro",
    "μ": "micro",
    "π": "pi",
    "Ω": "ohm",
    "α": "alpha",
    "β": "beta",
    "γ": "gamma",
    "δ": "delta",
    "Δ": "delta",
    "λ": "lambda",
    "σ": "sigma",
    "θ": "theta",
}
_SPOKEN_DOMAINS = "com org net info dev app gov biz shop online site store page"
TOP_LEVEL_DOMAINS_AS_WORDS = frozenset(_SPOKEN_DOMAINS.split())
