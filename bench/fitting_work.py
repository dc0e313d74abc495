"""What models are asked so that acceptance can be fitted on their answers.

Nothing of it is asked by `bench.speed`, as long as that asks five questions of each category.
"""

import json
from pathlib import Path

from bench.workloads import (
    ANSWER_TOKENS,
    EDIT_TOKENS,
    Question,
    copy,
    of_code,
    proofread,
    reformat,
    rename,
    spec_bench,
)

_BEHIND, _OF_EACH = 5, 8  # questions of Spec-Bench: those that the benchmarks leave

_RENAMES = {
    "shutil:_samefile": ("src", "first_path"),
    "difflib:get_close_matches": ("cutoff", "threshold"),
    "queue:Queue.get": ("block", "wait"),
    "random:Random.choices": ("population", "items"),
    "mailbox:Maildir.clean": ("path", "file_name"),
    "sched:scheduler.enterabs": ("priority", "rank"),
    "copy:_reconstruct": ("y", "duplicate"),
    "colorsys:hsv_to_rgb": ("s", "saturation"),
    "threading:Semaphore.acquire": ("endtime", "deadline"),
}
_PLAIN = (
    "textwrap:shorten",
    "calendar:TextCalendar.formatmonth",
    "string:Template.substitute",
    "configparser:RawConfigParser.read",
    "pprint:PrettyPrinter._format_dict_items",
    "cmd:Cmd.columnize",
    "ftplib:parse150",
    "locale:_group",
    "urllib.parse:urlunsplit",
)
_COMMENTED = (
    "fractions:Fraction.limit_denominator",
    "optparse:OptionParser.parse_args",
    "tarfile:itn",
    "csv:Sniffer.has_header",
    "threading:Barrier.wait",
    "json.encoder:JSONEncoder.encode",
    "quopri:encode",
    "heapq:nsmallest",
)

_LETTERS = (
    """Hello Marta,

thanks for you're mail. We has arrived yesterday evening after a long travel, and the appartment is very nice. From
the window one can sees the harbour. Tomorow we want to visit the old fortress, if the whether stays dry. The kids
is already asking for the beach, so we will properly split up.

Could you please water the plants on friday? The key lays under the blue pot besides the door.

Lots of love,
Ines""",
    """Notice to all tenants

On Thursday the 12th of Octobre the water will be turned of between 8 and 11 o'clock, because the pump in the
basement must to be replaced. Please fill some bottles before. The elevator do not work neither during this time.
If you has any question, call the caretaker under the number that hang in the stair case.

We apologise for the inconvience.""",
    """Report on the second quarter

Sales has grown by four per cent compared with the first quarter, wich is less then we had planed. The new shop in
the station sells good, but the rent eat most of the profit. Their are two reasons for the weak may: the street
works before our main entrance, and the late delivery of the summer cloths. For the next month we expects a better
result, since both problems is solved.""",
    """My first week as a gardener

On monday I learned how to prune roses with out hurting them. You has to cut just above a outward looking bud. On
tuesday it rained, so we cleaned the tools and repared the old wheel barrow. Wensday was the best day: we planted
fourty tulip bulbs near the gate. My back hurted afterwards, but the view were worth it. I am looking foward too the
spring.""",
    """Dear Sir or Madam,

I have boughted a coffee machine in your shop on the 3rd of this month. Already after four days it begun to leak,
and since yesterday it don't heat up any more. I have kept the reciept and the original packing. As the warrenty is
two years, I would like to get either a new machine or my money back. Please tell me were I should sent it.

Yours sincerly,
Paul Renner""",
    """How the ferry works

The ferry has no motor at all. It hang on a long cable that are fixed upstream, and the current push it from one bank
to the other. The ferry man only have to turn the rudder. In spring, when the river carry much water, the crossing
take less then two minutes. In summer it can takes ten. Bicycles is carried for free, but dogs needs a ticket.""",
)


def fitting_work(questions: Path | None) -> list[Question]:
    """Return what to ask: edits of files and other texts, and where Spec-Bench is there, of its questions."""
    asked = [
        *(("edit: rename", rename(name, old, new)) for name, (old, new) in _RENAMES.items()),
        *(("edit: type hints", of_code(name, "Add type hints to the parameters and the result")) for name in _PLAIN),
        *(("edit: docstring", of_code(name, "Write a better docstring for this function")) for name in _PLAIN),
        *(("edit: comments", of_code(name, "Translate all comments into French")) for name in _COMMENTED),
        *(("edit: configuration", text) for text in _configurations()),
        *(("edit: reformat", reformat(name)) for name in _COMMENTED),
        *(("edit: proofread", proofread(letter)) for letter in _LETTERS),
    ]
    edits = [Question(category, text, EDIT_TOKENS) for category, text in asked]
    copies = [copy(name) for name in _PLAIN[:5]]
    answers = [
        Question(category, text, ANSWER_TOKENS)
        for category, texts in (("chat", _TALK), ("reasoning", _PUZZLES), ("extraction", _SOURCES))
        for text in texts
    ]
    own = edits + copies + answers
    return own + ([] if questions is None else spec_bench(questions, _OF_EACH, behind=_BEHIND))


def _configurations() -> list[str]:
    """Ask for changes all over configuration files of several kinds."""
    hosts = "\n".join(
        f"[host.web{i:02}]\naddress = 10.0.3.{20 + i}\nport = 8080\ntimeout = 30\nlog_level = info\n" for i in range(8)
    )
    services = "\n".join(
        f"  {name}:\n    image: ghcr.io/acme/{name}:2.3.1\n    restart: unless-stopped\n    networks: [backend]\n"
        f"    environment:\n      LOG_FORMAT: text\n      WORKERS: 4"
        for name in ("billing", "catalog", "gateway", "mailer", "search", "users")
    )
    rules = json.dumps(
        [
            {"id": i, "path": f"/api/v1/{name}", "limit": 100, "burst": 20, "enabled": True}
            for i, name in enumerate(
                ("orders", "items", "users", "carts", "stock", "prices", "search", "login"), start=1
            )
        ],
        indent=2,
    )
    variables = "\n".join(
        f"{name}_URL=http://{name.lower()}.internal:9000\n{name}_TIMEOUT=15\n{name}_RETRIES=3"
        for name in ("AUTH", "CATALOG", "MAIL", "ORDERS", "PAYMENT", "SEARCH")
    )
    changes = (
        ("ini", hosts, "Change every timeout to 60"),
        ("ini", hosts, "Set `log_level` to `debug` everywhere"),
        ("yaml", "services:\n" + services, "Replace the image version 2.3.1 by 2.4.0 everywhere"),
        ("yaml", "services:\n" + services, "Change `LOG_FORMAT: text` to `LOG_FORMAT: json` everywhere"),
        ("json", rules, "Change the prefix `/api/v1/` to `/api/v2/` in all rules"),
        ("json", rules, "Set every limit to 250"),
        ("sh", variables, "Use https instead of http in all URLs"),
        ("sh", variables, "Change every timeout from 15 to 45"),
    )
    return [f"{wish}. Answer with the whole file only.\n```{language}\n{text}\n```" for language, text, wish in changes]


_TALK = (
    "Write a shell script that renames all .jpeg files of a folder to .jpg.",
    "What is the difference between a process and a thread?",
    "Suggest five names for a bakery, and say why each would fit.",
    "Explain how to change a bicycle tyre, step by step.",
    "Write a JavaScript function that removes duplicates from an array.",
    "Write a polite mail that puts off a meeting by a week.",
    "Imagine that you are a tour guide in Lisbon. Greet your group, and tell what you will see today.",
    "Explain photosynthesis to a child, and then to a student of biology.",
    "Was the invention of the printing press more important than that of the telegraph? Give reasons for both.",
)

_PUZZLES = (
    "A train leaves at 9:40 and needs 2 hours and 35 minutes. A second one leaves at 10:15 and is 40 minutes faster. "
    "Which arrives first, and by how much? Think step by step.",
    "Solve for x and y: 3x + 2y = 16 and 5x - y = 5. Show each step.",
    "Anna is older than Ben, Carl is younger than Ben, and Dora is older than Anna. Who is the second oldest? Why?",
    "A tank of 240 litres is filled by one pipe in 6 hours and by another in 4 hours. How long do both together need?",
)

_SOURCES = (
    "Give the name, the city and the year of each founder below as a list of JSON objects.\nMaria Lindgren founded "
    "Nordljus in Malmö in 1998. Two years later Pedro Alvarez started Casa Verde in Valencia. In Graz, it was Eva "
    "Huber who opened Huber Optik in 1987, while Tom Becker has run Becker Boats in Kiel since 2011.",
    "List every date in this text with what happens on it.\nThe exhibition opens on 4 March with a speech by the "
    "mayor. Guided tours begin on 11 March. On 2 April the museum stays closed for the annual inspection, and on "
    "29 April the exhibition ends with a concert by the Alder Quartet in the main hall.",
    "Write the following as a table with the columns product, price and stock: The oak desk costs 420 euros and 3 are "
    "left. Of the pine shelf, at 85 euros, there are 14. The reading lamp is 39 euros, and 52 are in stock. The chair "
    "costs 610 euros; 1 is left.",
    "Which problems does this review name? Quote the words.\nThe kettle heats fast, but the lid does not close "
    "properly. After a week the handle got loose, and the light that shows whether it is on flickers. On the other "
    "hand it is quiet, easy to clean and looks good on the table.",
)
