"""References in four scripts, and system outputs of different quality made from them."""

import random
from pathlib import Path

_DEMO = Path(__file__).parent.parent / "data" / "demo" / "test.de"

CHINESE = """
昨天晚上,我们在河边看到了一只白色的大鸟。
请问,去火车站的公共汽车在哪里?
她买了三个苹果和两瓶牛奶,一共花了25元。
如果明天下雨,比赛就会推迟到星期六。
这本书是一位年轻的老师写的。
孩子们在公园里踢足球,直到天黑。
医生说他需要多休息,少喝咖啡。
新的桥比旧的桥长得多。
我不知道他为什么没有来开会。
2019年,这座城市有超过800万人口。
把窗户打开一点,房间里太热了。
他用Python写了一个简单的程序。
春天来了,山上的花都开了。
你能不能说得慢一点?
这家饭馆的鱼很好吃,但是有点贵。
我哥哥在北京大学学习历史。
""".strip().split("\n")
JAPANESE = """
昨日の夜、川のそばで大きな白い鳥を見ました。
すみません、駅へ行くバスはどこですか。
彼女はりんごを三つと牛乳を二本買って、250円払った。
明日雨が降れば、試合は土曜日に延期されます。
この本は若い先生が書いたものです。
子どもたちは暗くなるまで公園でサッカーをしていた。
医者は、もっと休んでコーヒーを減らすように言った。
新しい橋は古い橋よりずっと長い。
彼がなぜ会議に来なかったのか分かりません。
2019年には、この町の人口は800万人を超えていた。
窓を少し開けてください。部屋が暑すぎます。
彼はPythonで簡単なプログラムを書いた。
春になって、山の花がみんな咲いた。
もう少しゆっくり話していただけますか。
この店の魚はおいしいが、少し高い。
兄は東京の大学で歴史を勉強しています。
""".strip().split("\n")
RUSSIAN = """
Вчера вечером мы видели у реки большую белую птицу.
Скажите, пожалуйста, где останавливается автобус до вокзала?
Она купила три яблока и две бутылки молока за 250 рублей.
Если завтра пойдёт дождь, игру перенесут на субботу.
Эту книгу написал молодой учитель.
Дети играли в футбол в парке до самой темноты.
Врач сказал, что ему нужно больше отдыхать и меньше пить кофе.
Новый мост намного длиннее старого.
Я не знаю, почему он не пришёл на собрание.
В 2019 году в городе жило больше 8 миллионов человек.
Открой немного окно, в комнате слишком жарко.
Он написал простую программу на языке Python.
Пришла весна, и на горах расцвели цветы.
Не могли бы вы говорить чуть медленнее?
Рыба в этом ресторане вкусная, но дорогая.
Мой брат изучает историю в университете.
""".strip().split("\n")
# References by target language. The German ones are those of the demo corpus.
REFERENCES = {
    "de": _DEMO.read_text(encoding="utf-8").splitlines()[:80],
    "ru": RUSSIAN,
    "zh": CHINESE,
    "ja": JAPANESE,
}
TOKENIZERS = {"de": "13a", "ru": "13a", "zh": "zh", "ja": "ja-mecab"}


def system_output(language: str, rate: float, seed: int) -> list[str]:
    """Return the references after dropping, swapping or changing about `rate` of the words."""
    random_ = random.Random(seed)
    is_spaced = language not in ("zh", "ja")
    lines = []
    for line in REFERENCES[language]:
        words = [w for w in (line.split() if is_spaced else line) if random_.random() > rate / 3]
        for i in range(len(words) - 1):
            if random_.random() < rate / 3:
                words[i], words[i + 1] = words[i + 1], words[i]
            if random_.random() < rate / 3:
                words[i] = words[i].upper() if is_spaced else words[0]
        lines.append((" " if is_spaced else "").join(words))
    return lines
