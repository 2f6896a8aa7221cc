"""The answers that are supported and those that are refused, each under a name that says why.

Every supported set is baked, compared with its golden listing, linted, type-checked and unit-tested.
Options that do not interact are not multiplied: each answer of each question stands in one set at least.
"""

from __future__ import annotations

QUOTES = "\"double\" 'single' ` back` \\ \\n $(id) ; & | > < # % {lone} -rf"
SCRIPTS = "Übung, платежи, 支付, दस्तावेज़, \u200fعربي\u200e, zero\u200bwidth, 😀"

SUPPORTED: dict[str, dict[str, str]] = {
    "default": {},
    "minimal": {
        "license": "Proprietary",
        "value_format": "json",
        "ci_provider": "none",
        "monitoring": "none",
        "containers": "none",
    },
    "gitlab-mit": {
        "project_name": "Card fraud",
        "license": "MIT",
        "ci_provider": "gitlab",
        "source_topic": "card.swipes",
        "containers": "kubernetes",
        "monitoring": "none",
    },
    "any-text": {
        "project_name": "支付 платежи (v2), d'Été",
        "project_slug": "any_text",
        "description": f"{QUOTES}\n\n# no heading\n<!-- <script>\t```\n{SCRIPTS}",
        "author": f"{SCRIPTS} {QUOTES}\nEvil: header\x00\x1b[31m",
        "containers": "kubernetes",
    },
    "longest": {
        "project_name": "Long " * 11 + "names",
        "project_slug": "a" * 50,
        "description": "d" * 500,
        "author": "é" * 500,
        "source_topic": "T" * 192,
        "monitoring": "none",  # with containers
    },
    "shortest": {
        "project_name": "Z",
        "project_slug": "z9",
        "description": "-",
        "author": "i",
        "source_topic": "t",
        "containers": "none",  # with monitoring
    },
}

# name of the case -> answers, and the question whose rule the refusal must name
REFUSED: dict[str, tuple[dict[str, str], str]] = {
    **{
        f"slug {case}": ({"project_slug": slug}, "project_slug")
        for case, slug in {
            "climbs out": "../../x",
            "is two folders": "a/b",
            "is an absolute path": "/slug_of_the_template_tests",
            "is home": "~x",
            "has a double quote": 'pay"ments',
            "has a single quote": "pay'ments",
            "has a backslash": "pay\\ments",
            "has a command": "pay$(id)ments",
            "has a back quote": "pay`id`ments",
            "has a semicolon": "pay;ments",
            "has a newline": "payments\n",
            "has a tab": "pay\tments",
            "has a NUL": "pay\x00ments",
            "is an option": "-rf",
            "has an umlaut": "zahlungen_für",
            "has a right-to-left mark": "pay\u200fments",
            "has a zero-width space": "pay\u200bments",
            "has a Cyrillic look-alike": "p\u0430yments",
            "has full-width digits": "pay\uff11",
            "has a space": "pay ments",
            "has upper case": "Payments",
            "has a hyphen": "pay-ments",
            "starts with a digit": "1payments",
            "starts with an underscore": "_payments",
            "ends with an underscore": "payments_",
            "has two underscores": "pay__ments",
            "is one character": "p",
            "is 51 characters": "p" * 51,
            "ends with a dot": "payments.",
            "is the keyword import": "import",
            "is the keyword class": "class",
            "is the standard module json": "json",
            "is the standard package test": "test",
            "is the dependency pyspark": "pyspark",
            "is the dependency confluent_kafka": "confluent_kafka",
            "is kafka": "kafka",
            "is the import package": "pipeline",
            "is a Windows device": "con",
            "is a numbered Windows device": "com1",
            "is a product": "{{ 7*7 }}",
            "is a class": "{{ cookiecutter.__class__ }}",
            "is empty": "",
            "is a dot": ".",
            "is two dots": "..",
            "is home alone": "~",
            "is slashes": "///",
            "is a zero-width space": "\u200b",
            "is rendered to nothing": "{{ '' }}",
            "is longer than a file name": "p" * 300,
        }.items()
    },
    **{
        f"topic {case}": ({"source_topic": topic}, "source_topic")
        for case, topic in {
            "is empty": "",
            "is a dot": ".",
            "is two dots": "..",
            "is 249 characters": "t" * 249,
            "is too long for the lane topic": "t" * 230,
            "belongs to Kafka": "__consumer_offsets",
            "has a slash": "pay/ments",
            "has a space": "pay ments",
            "has a newline": "payments\n",
            "has a quote": 'payments"',
            "is not ASCII": "zahlungen_für",
            "is an output": "receipts",
            "is the other output": "alerts",
        }.items()
    },
    **{
        f"name {case}": ({"project_name": name, "project_slug": "fine_slug"}, "project_name")
        for case, name in {
            "is empty": "",
            "is a space": " ",
            "is a heading": "# Payments",
            "is 61 characters": "p" * 61,
            "has a newline": "Pay\nments",
            "has a tag": "Pay<b>ments",
            "has stars": "Pay*ments*",
            "has a quote": 'Pay"ments',
            "has a backslash": "Pay\\ments",
            "has a right-to-left override": "Pay\u202ements",
        }.items()
    },
    **{
        f"{question} {case}": ({question: text}, question)
        for question in ("description", "author")
        for case, text in {
            "is empty": "",
            "is only spaces": " \n\t ",
            "is only control characters": "\x00\x07",
            "is only later control characters": "\x7f\x80\x9f",
            "is only of no width": "\u200b\u200d\ufeff\u2060",
            "is only combining marks": "\u0301\u0308",
            "is 501 characters": "t" * 501,
            "makes Jinja of Jinja": "{{ '{{' }} 7*7 }}",
            "makes a Jinja block": "{{ '{%' }} raw %}",
            "is not Unicode": "\udcff",
        }.items()
    },
    "derived description given": ({"__description_quoted": 'x"\n[evil]\n'}, "__description_quoted"),
    "derived author given": ({"__author": "x\nEvil: header"}, "__author"),
    "derived licence given": ({"__license": 'MIT"'}, "__license"),
}
