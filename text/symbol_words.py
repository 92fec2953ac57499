"""What digits, symbols of addresses and signs of formulas are called, in every language that is read.

The tables have one row for each sign and one column for each language of `_ORDER`; Cantonese is read as Chinese.
"""

# ruff: noqa: E501 (a row of a table is one line)

from __future__ import annotations

_LANGUAGES = "en zh ja ko de es fr it ru"
_ORDER = _LANGUAGES.split()

_ADDRESS = """
. dot|点|ドット|점|Punkt|punto|point|punto|точка
/ slash|斜杠|スラッシュ|슬래시|Schrägstrich|barra|barre|barra|слэш
- dash|杠|ハイフン|하이픈|Bindestrich|guion|tiret|trattino|дефис
_ underscore|下划线|アンダーバー|밑줄|Unterstrich|guion bajo|tiret bas|trattino basso|подчёркивание
? question mark|问号|クエスチョン|물음표|Fragezeichen|interrogación|point d'interrogation|punto interrogativo|знак вопроса
= equals|等于|イコール|이퀄|gleich|igual|égal|uguale|равно
& and|和|アンド|앤드|und|y|et|e|и
# hash|井号|シャープ|샵|Raute|almohadilla|dièse|cancelletto|решётка
@ at|艾特|アットマーク|골뱅이|at|arroba|arobase|chiocciola|собака
+ plus|加号|プラス|플러스|Plus|más|plus|più|плюс
: colon|冒号|コロン|콜론|Doppelpunkt|dos puntos|deux points|due punti|двоеточие
% percent|百分号|パーセント|퍼센트|Prozent|por ciento|pour cent|per cento|процент
~ tilde|波浪号|チルダ|물결|Tilde|tilde|tilde|tilde|тильда
"""

_FORMULA = """
+ plus|加|プラス|더하기|plus|más|plus|più|плюс
− minus|减|マイナス|빼기|minus|menos|moins|meno|минус
× times|乘|かける|곱하기|mal|por|fois|per|умножить на
÷ divided by|除以|割る|나누기|geteilt durch|entre|divisé par|diviso|разделить на
= equals|等于|イコール|는|gleich|igual a|égale|uguale a|равно
< less than|小于|小なり|작다|kleiner als|menor que|inférieur à|minore di|меньше
> greater than|大于|大なり|크다|größer als|mayor que|supérieur à|maggiore di|больше
≤ less than or equal to|小于等于|以下|이하|kleiner gleich|menor o igual que|inférieur ou égal à|minore o uguale a|меньше или равно
≥ greater than or equal to|大于等于|以上|이상|größer gleich|mayor o igual que|supérieur ou égal à|maggiore o uguale a|больше или равно
≠ not equal to|不等于|ノットイコール|같지 않다|ungleich|distinto de|différent de|diverso da|не равно
≈ approximately equal to|约等于|ニアリーイコール|약|ungefähr gleich|aproximadamente|environ égal à|circa uguale a|приблизительно равно
± plus or minus|正负|プラスマイナス|플러스마이너스|plus minus|más menos|plus ou moins|più o meno|плюс минус
√ square root of|根号|ルート|루트|Wurzel aus|raíz de|racine de|radice di|корень из
∞ infinity|无穷大|無限大|무한대|unendlich|infinito|infini|infinito|бесконечность
→ to|趋于|から|에서|nach|a|vers|a|к
∑ the sum of|求和|総和|합|Summe|suma de|somme de|somma di|сумма
∫ the integral of|积分|積分|적분|Integral|integral de|intégrale de|integrale di|интеграл
% percent|百分之|パーセント|퍼센트|Prozent|por ciento|pour cent|per cento|процентов
& and|和|アンド|앤드|und|y|et|e|и
@ at|艾特|アットマーク|골뱅이|at|arroba|arobase|chiocciola|собака
# number|井号|シャープ|샵|Nummer|número|numéro|numero|номер
§ section|第|セクション|섹션|Paragraf|sección|paragraphe|paragrafo|параграф
° degrees|度|度|도|Grad|grados|degrés|gradi|градусов
€ euros|欧元|ユーロ|유로|Euro|euros|euros|euro|евро
$ dollars|美元|ドル|달러|Dollar|dólares|dollars|dollari|долларов
£ pounds|英镑|ポンド|파운드|Pfund|libras|livres|sterline|фунтов
¥ yen|元|円|엔|Yen|yenes|yens|yen|иен
"""

_PHRASES = """
over over|除以|割る|나누기|durch|sobre|sur|su|делить на
squared squared|的平方|の二乗|제곱|Quadrat|al cuadrado|au carré|al quadrato|в квадрате
cubed cubed|的立方|の三乗|세제곱|hoch drei|al cubo|au cube|al cubo|в кубе
power to the power of|的次方|の累乗|승|hoch|elevado a|puissance|alla|в степени
from from|从|から|에서|von|de|de|da|от
till to|到|まで|까지|bis|a|à|a|до
link link|链接|リンク|링크|Link|enlace|lien|link|ссылка
email e-mail address|邮箱地址|メールアドレス|이메일 주소|E-Mail-Adresse|dirección de correo|adresse e-mail|indirizzo e-mail|адрес почты
plus plus|加|プラス|플러스|plus|más|plus|più|плюс
"""

_DIGITS = """
zero one two three four five six seven eight nine
零 一 二 三 四 五 六 七 八 九
ゼロ 一 二 三 四 五 六 七 八 九
공 일 이 삼 사 오 육 칠 팔 구
null eins zwei drei vier fünf sechs sieben acht neun
cero uno dos tres cuatro cinco seis siete ocho nueve
zéro un deux trois quatre cinq six sept huit neuf
zero uno due tre quattro cinque sei sette otto nove
ноль один два три четыре пять шесть семь восемь девять
"""

_GREEK_SMALL = "alpha beta gamma delta epsilon zeta eta theta iota kappa lambda mu nu xi pi rho sigma tau upsilon phi chi psi omega"
_GREEK_CAPITAL = "gamma delta theta lambda xi pi sigma phi psi omega"
GREEK = {
    **dict(zip("αβγδεζηθικλμνξπρστυφχψω", _GREEK_SMALL.split(), strict=True)),
    **dict(zip("ΓΔΘΛΞΠΣΦΨΩ", _GREEK_CAPITAL.split(), strict=True)),
}

Words = dict[str, dict[str, str]]


def _columns(table: str) -> Words:
    words: Words = {language: {} for language in _ORDER}
    for row in table.strip().splitlines():
        sign, names = row.split(" ", 1)
        for language, name in zip(_ORDER, names.split("|"), strict=True):
            words[language][sign] = name
    words["yue"] = words["zh"]
    return words


ADDRESS = _columns(_ADDRESS)
FORMULA = _columns(_FORMULA)
PHRASES = _columns(_PHRASES)
DIGITS = {language: row.split() for language, row in zip(_ORDER, _DIGITS.strip().splitlines(), strict=True)}
DIGITS["yue"] = DIGITS["zh"]
TIGHT = frozenset({"zh", "yue", "ja"})  # written without spaces between words


def digits(run: str, language: str) -> str:
    """Each digit of `run` by its name: "042", "de" → "null vier zwei"."""
    names = [DIGITS[language][int(digit)] for digit in run if digit in "0123456789"]
    return ("" if language in TIGHT or language == "ko" else " ").join(names)
