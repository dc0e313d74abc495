import ast
import gc
import json
import re
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from pathlib import Path
from types import MappingProxyType
from typing import Any

import psutil
import pytest

from lcspec import ClosedError, PromptError, SpeculativeLM
from lcspec.chat_template import ChatTemplate, worker
from lcspec.chat_template import render as renderer
from lcspec.llama import Model

CHATML = (
    "{{ bos_token }}{% for message in messages %}"
    "{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
HELLO = [{"role": "user", "content": "Hello"}]


def render(source: str, messages: Sequence[Mapping[str, str]] = HELLO, bos: str = "<s>", eos: str = "</s>") -> str:
    return ChatTemplate(source, bos=bos, eos=eos).render(messages)


def process_of(template: ChatTemplate) -> psutil.Process:
    return psutil.Process(template._worker._process.pid)


def is_gone(process: psutil.Process) -> bool:
    return not psutil.wait_procs([process], timeout=30)[1]


def peak_memory() -> int:
    """Return the most memory, in MiB, that this process ever had."""
    resource = pytest.importorskip("resource")
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> (20 if sys.platform == "darwin" else 10)


def test_a_conversation_becomes_a_prompt_that_ends_where_the_answer_begins() -> None:
    messages = [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "1 < 2 & 'ça va' 😀?"},
        {"role": "assistant", "content": "Yes."},
        {"role": "user", "content": "Why?\n"},
    ]
    assert render(CHATML, messages) == (
        "<s><|im_start|>system\nBe brief.<|im_end|>\n"
        "<|im_start|>user\n1 < 2 & 'ça va' 😀?<|im_end|>\n"
        "<|im_start|>assistant\nYes.<|im_end|>\n"
        "<|im_start|>user\nWhy?\n<|im_end|>\n"
        "<|im_start|>assistant\n"
    )


def test_a_template_compiles_once_and_renders_many_conversations() -> None:
    template = ChatTemplate(CHATML)
    first = template.render(HELLO)
    assert "Bye" in template.render([*HELLO, {"role": "assistant", "content": "Bye"}])
    assert template.render(HELLO) == first


def test_the_special_tokens_are_empty_unless_given() -> None:
    source = "[{{ bos_token }}|{{ eos_token }}]"
    assert render(source) == "[<s>|</s>]"
    assert ChatTemplate(source).render(HELLO) == "[|]"


def test_message_content_is_never_read_as_a_template() -> None:
    assert "{{ 1 + 1 }}{% raw %}" in render(CHATML, [{"role": "user", "content": "{{ 1 + 1 }}{% raw %}"}])


def test_blank_space_around_blocks_is_trimmed_as_hugging_face_does() -> None:
    assert render("a\n  {% if true %}\n  b\n  {% endif %}\nc") == "a\n  b\nc"


def test_a_loop_can_be_left_early() -> None:
    messages = [{"role": "user", "content": text} for text in "abc"]
    source = "{% for m in messages %}{% if m.content == 'b' %}{% break %}{% endif %}{{ m.content }}{% endfor %}"
    assert render(source, messages) == "a"


def test_tojson_keeps_every_character_as_it_is() -> None:
    messages = [{"role": "user", "content": "<b> & 'ü' \"😀\""}]
    assert render("{{ messages[0].content | tojson }}", messages) == '"<b> & \'ü\' \\"😀\\""'


def test_tojson_indents() -> None:
    assert render("{{ messages | tojson(indent=4) }}") == json.dumps(HELLO, indent=4)


def test_strftime_now_gives_the_date() -> None:
    before = datetime.now().replace(microsecond=0)
    text = render("{{ strftime_now('%d %b %Y %H:%M:%S') }}")
    assert before <= datetime.strptime(text, "%d %b %Y %H:%M:%S") <= datetime.now()


def test_a_template_can_refuse_a_conversation() -> None:
    source = "{% if messages[0].role != 'system' %}{{ raise_exception('a system message comes first') }}{% endif %}ok"
    with pytest.raises(PromptError, match="a system message comes first"):
        render(source)
    assert render(source, [{"role": "system", "content": ""}]) == "ok"


@pytest.mark.parametrize(
    "source",
    [
        "{{ messages",
        "{% if true %}",
        "{% endfor %}",
        "{{ messages | no_such_filter }}",
        "{% no_such_tag %}",
        "{{ 1 + }}",
    ],
)
def test_a_syntax_error_is_found_before_rendering(source: str) -> None:
    with pytest.raises(PromptError, match="chat template can't be used"):
        ChatTemplate(source)


@pytest.mark.parametrize(
    "source",
    [
        "{{ nothing.at_all }}",
        "{{ messages[0]['nothing']['at_all'] }}",
        "{{ messages[9].content }}",
        "{{ 1 / 0 }}",
        "{{ messages[0].content + 1 }}",
        "{{ no_such_function() }}",
    ],
)
def test_an_error_while_rendering_is_a_prompt_error(source: str) -> None:
    template = ChatTemplate(source)
    with pytest.raises(PromptError, match="refuses these messages"):
        template.render(HELLO)


@pytest.mark.parametrize(
    "source",
    [
        "{{ ''.__class__.__mro__ }}",
        "{{ ''.__class__.__mro__[1].__subclasses__() }}",
        "{{ (''|attr('__class__')).__mro__ }}",
        "{{ ''['__class__']['__mro__'] }}",
        "{{ '{0.__class__.__mro__}'.format('') }}",
        "{{ raise_exception.__globals__['json'] }}",
        "{{ cycler.__init__.__globals__ }}",
        "{{ self.__init__.__globals__ }}",
        "{{ messages.append(1) }}",
        "{{ messages[0].update(content='changed') }}",
        "{{ range(1000000000) | list }}",
        "{% include '/etc/passwd' %}",
        "{% import 'os' as os %}",
    ],
)
def test_a_template_can_not_leave_its_sandbox(source: str) -> None:
    messages = [dict(message) for message in HELLO]
    with pytest.raises(PromptError):
        render(source, messages)
    assert messages == HELLO


def test_an_unsafe_attribute_shows_nothing() -> None:
    assert render("[{{ ''.__class__ }}{{ raise_exception.__globals__ }}]") == "[]"


def test_a_conversation_needs_a_message() -> None:
    with pytest.raises(PromptError, match="at least one message"):
        render(CHATML, [])


@pytest.mark.parametrize(
    "message", [{}, {"role": "user"}, {"content": "Hello"}, "Hello", None, ("user", "Hello"), ["role", "content"]]
)
def test_each_message_needs_a_role_and_a_content(message: Any) -> None:
    with pytest.raises(PromptError, match=re.escape("mapping with 'role' and 'content'")):
        render(CHATML, [*HELLO, message])


@pytest.mark.parametrize(
    "source",
    ["{% for a in [1] %}" * 21 + "x" + "{% endfor %}" * 21, "{{" + "(" * 3000 + "1" + ")" * 3000 + "}}"],
)
def test_a_template_that_python_cannot_compile_is_refused(source: str) -> None:
    with pytest.raises(PromptError, match="can't be used"):
        ChatTemplate(source)


def test_what_hugging_face_templates_use_is_there() -> None:
    source = (
        "{% if tools is not none %}tools{% endif %}{% generation %}{{ messages[0]['content'] }}{% endgeneration %}"
        "{{ {'b': 1, 'a': 'é'} | tojson(ensure_ascii=False, sort_keys=True, separators=(',', ':')) }}"
    )
    assert ChatTemplate(source).render([{"role": "user", "content": "hi"}]) == 'hi{"a":"é","b":1}'


def test_a_refusal_of_several_lines_becomes_one() -> None:
    template = ChatTemplate("{{ raise_exception('first\nsecond') }}")
    with pytest.raises(PromptError, match="first second"):
        template.render([{"role": "user", "content": "hi"}])


LOOP = "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}"
GROW = "{% set n = namespace(x=START) %}{% for i in range(64) %}{% set n.x = STEP %}{% endfor %}"
DEEPEN = "{% set n = namespace(x=messages) %}{% for i in range(99999) %}{% set n.x = STEP %}{% endfor %}"
BAD = {
    "an endless loop": LOOP,
    "nested loops": "{% for a in range(99999) %}" * 8 + "{% endfor %}" * 8,
    "a loop around a call": "{% for a in range(99999) %}{{ messages[0].content * 99999999 and '' }}{% endfor %}",
    "a power": "{{ 3 ** 9999999 % 10 }}",
    "repetition": "{{ messages[0].content * 10**10 }}",
    "repetition at compile time": "{{ 'a' * 10**10 }}",
    "repetition beyond any length": "{{ 'a' * 10**30 }}",
    "a list, repeated": "{{ (messages * 10**9) | length }}",
    "doubling by ~": GROW.replace("START", "'a'").replace("STEP", "n.x ~ n.x"),
    "doubling by +": GROW.replace("START", "[1]").replace("STEP", "n.x + n.x"),
    "doubling by replace": GROW.replace("START", "'a'").replace("STEP", "n.x.replace('a', 'aa')"),
    "doubling by a block": GROW.replace("START", "'a'").replace(
        "{% set n.x = STEP %}", "{% set both %}{{ n.x }}{{ n.x }}{% endset %}{% set n.x = both %}"
    ),
    "center": "{{ 'a' | center(10**10) }}",
    "a center block": "{% filter center(10**10) %}a{% endfilter %}",
    "zfill": "{{ 'a'.zfill(10**10) }}",
    "a wide %": "{{ '%999999999d' % 1 }}",
    "a wide format": "{{ '{:999999999}'.format(1) }}",
    "indent": "{{ 'a\nb' | indent(10**9) }}",
    "tojson with indent": "{{ messages | tojson(indent=10**9) }}",
    "join": "{{ range(99999) | join('x' * 99999) }}",
    "batch": "{{ messages | batch(10**10, 'x') | list }}",
    "slice": "{{ messages | slice(10**10) | list }}",
    "map into a list": "{{ (range(99999) | list * 99999) | map('string') | list }}",
    "a list of lists": "{% set n = namespace(x=[]) %}{% for i in range(99999) %}"
    "{% set n.x = n.x + [range(99999) | list] %}{% endfor %}",
    "a huge range": "{{ range(10**12) | list }}",
    "lorem ipsum": "{{ lipsum(10**9) }}",
    "a long date": "{{ strftime_now('%c' * 99999999) }}",
    "output in pieces": "{% for a in range(99999) %}{% for b in range(99999) %}some text{% endfor %}{% endfor %}",
    "output in one piece": "{{ messages[0].content * 2000000 }}",
    "output of characters that JSON escapes": "{{ '\x00\x01' * 2000000 }}",
    "an endless macro": "{% macro f(x) %}{{ f(x) }}{% endmacro %}{{ f(1) }}",
    "a macro that branches": "{% macro f(x) %}{% if x %}{{ f(x - 1) ~ f(x - 1) }}{% endif %}{% endmacro %}{{ f(99) }}",
    "an endless recursive loop": "{% for x in [1] recursive %}{{ loop([1]) }}{% endfor %}",
    "a block in itself": "{% block a %}{{ self.a() }}{% endblock %}",
    "nested generators": DEEPEN.replace("STEP", "n.x | map('upper')") + "{{ n.x | list }}",
    "nested lists": DEEPEN.replace("STEP", "[n.x]") + "{{ n.x }}",
    "nested lists as JSON": DEEPEN.replace("STEP", "[n.x]") + "{{ n.x | tojson }}",
    "nesting in the source": "{{" + "(" * 3000 + "1" + ")" * 3000 + "}}",
    "signs in the source": "{{" + "-" * 99999 + "1}}",
    "blocks in the source": "{% if true %}" * 3000 + "{% endif %}" * 3000,
    "a sum in the source": "{{ 1" + "+1" * 99999 + "}}",
    "many blocks": "{% if a %}x{% endif %}" * 40000,
    "a syntax error": "{% for %}",
    "an unknown filter": "{{ messages | nothing }}",
    "an unknown tag": "{% nothing %}",
    "an attribute of what is missing": "{{ nothing.at_all }}",
    "a class": "{{ ''.__class__.__mro__ }}",
    "a class through format": "{{ '{0.__class__.__mro__}'.format(messages) }}",
    "globals": "{{ raise_exception.__globals__['sys'].exit() }}",
    "an include": "{% include '/etc/passwd' %}",
    "an import": "{% import 'os' as os %}",
    "an inheritance": "{% extends 'base.html' %}",
    "a changed list": "{{ messages.append(messages[0]) }}",
    "a changed message": "{{ messages[0].update(content='changed') }}",
    "a refusal of several lines": "{{ raise_exception('one\n\r\n\u2028two') }}",
    "a refusal that moves the cursor": "{{ raise_exception('\x1b[2J\x07\x00') }}",
    "a refusal with a lone surrogate": "{{ raise_exception('\ud800') }}",
    "a lone surrogate in a date": "{{ strftime_now('\ud800') }}",
    "a long refusal": "{{ raise_exception('all work and no play ' * 99999) }}",
    "a refusal without a reason": "{{ raise_exception(nothing) }}",
    "a division by zero": "{{ 1 / 0 }}",
    "a number too long to show": "{{ 10 ** 5000 }}",
}


@pytest.mark.parametrize("source", BAD.values(), ids=BAD.keys())
def test_a_bad_template_is_an_error_of_one_line(
    source: str, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(worker, "SECONDS", 0.5)
    peak = peak_memory()
    with pytest.raises(PromptError) as caught:
        render(source)
    assert str(caught.value).startswith("the model's chat template ")
    assert str(caught.value).isprintable()
    assert len(str(caught.value)) < 600
    assert render(CHATML).startswith("<s><|im_start|>user\nHello")
    assert peak_memory() < peak + 50
    assert capfd.readouterr() == ("", "")


def test_what_is_missing_shows_nothing() -> None:
    assert render("[{{ nothing }}{{ messages[0].nothing }}{{ messages[7] }}]") == "[]"


@pytest.mark.parametrize(
    ("bomb", "seconds", "limit"),
    [
        pytest.param(LOOP, 0.5, r"ran longer than 0\.5 s", id="time"),
        pytest.param("{{ messages | tojson(indent=10**9) }}", 60, "took more than 512 MiB of memory", id="memory"),
        pytest.param(BAD["doubling by +"], 60, "took more than 512 MiB of memory", id="memory, in steps"),
        pytest.param("{{ messages[0].content * 2**20 }}", 60, "wrote more than 1 MiB", id="length"),
    ],
)
def test_a_template_that_broke_a_limit_renders_the_next_messages(
    bomb: str, seconds: float, limit: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    template = ChatTemplate("{% if messages[0].role == 'system' %}" + bomb + "{% endif %}{{ messages[0].content }}")
    monkeypatch.setattr(worker, "SECONDS", seconds)
    for _ in range(2):
        process = process_of(template)
        with pytest.raises(PromptError, match=limit):
            template.render([{"role": "system", "content": "Be brief."}])
        assert is_gone(process)
        assert template.render(HELLO) == "Hello"


def test_a_render_may_not_take_long_by_the_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    template = ChatTemplate("{% if messages[0].role == 'system' %}" + LOOP + "{% endif %}ok")
    with monkeypatch.context() as patch:
        patch.setattr(worker, "WALL_SECONDS", 0.2)
        with pytest.raises(PromptError, match=r"ran longer than 0\.2 s"):
            template.render([{"role": "system", "content": ""}])
    assert template.render(HELLO) == "ok"


def test_long_messages_may_have_long_prompts() -> None:
    text = "long 😀 text\n" * 300_000
    template = ChatTemplate("{% for m in messages %}{{ m.content ~ m.content }}{% endfor %}")
    assert template.render([{"role": "user", "content": text}]) == text * 2


@pytest.mark.parametrize(
    "text",
    ["\ud800", "\udfff\ud800", "a\0b", "a\nb\r\nc\u2028d\x85e", "😀 ça va, 你好", '"\\u0041\\n"', "\x1b\x7f", ""],
)
def test_every_text_passes_unchanged(text: str) -> None:
    messages = [{"role": "user", "content": text}, {"role": text, "content": "\ud83d", text: "\ude00"}]
    source = "{% for m in messages %}{{ m.content }}|{{ m.role }}|{% endfor %}{{ messages[1] | tojson }}{{ bos_token }}"
    expected = f"{text}|user|\ud83d|{text}|{json.dumps(messages[1], ensure_ascii=False)}{text}"
    assert render(source, messages, bos=text) == expected


def test_a_message_may_hold_whatever_json_holds() -> None:
    message = MappingProxyType(
        {"role": "user", "content": [MappingProxyType({"text": "hi", "n": (1, 2.5, None, True)})], "7": {}}
    )
    source = "{{ messages[0].content[0].text }} {{ messages[0] | tojson }}"
    assert render(source, [message]) == (
        'hi {"role": "user", "content": [{"text": "hi", "n": [1, 2.5, null, true]}], "7": {}}'
    )


def deep_list() -> list[Any]:
    deep: list[Any] = []
    for _ in range(10_000):
        deep = [deep]
    return deep


ENDLESS: dict[str, Any] = {}
ENDLESS["itself"] = ENDLESS


@pytest.mark.parametrize(
    "content", [b"bytes", {1, 2}, object(), {(1, 2): 3}, ENDLESS, MappingProxyType(ENDLESS), deep_list(), [10**5000]]
)
def test_a_message_that_is_no_json_is_refused(content: Any) -> None:
    template = ChatTemplate(CHATML)
    with pytest.raises(PromptError, match=r"the messages of a chat must be JSON: .+") as caught:
        template.render([{"role": "user", "content": content}])
    assert str(caught.value).isprintable()
    assert template.render(HELLO)


def test_one_process_renders_until_the_template_is_closed() -> None:
    template = ChatTemplate(CHATML)
    process = process_of(template)
    template.render(HELLO)
    with pytest.raises(PromptError, match="at least one message"):
        template.render([])
    template.render(HELLO)
    assert process_of(template) == process
    template.close()
    template.close()
    assert is_gone(process)
    with pytest.raises(ClosedError):
        template.render(HELLO)


def test_a_template_that_can_not_be_used_leaves_no_process(monkeypatch: pytest.MonkeyPatch) -> None:
    started = []

    class Popen(subprocess.Popen):  # type: ignore[type-arg]
        def __init__(self, *args: Any, **options: Any) -> None:
            super().__init__(*args, **options)
            started.append(self)

    monkeypatch.setattr(subprocess, "Popen", Popen)
    with pytest.raises(PromptError, match="can't be used"):
        ChatTemplate("{% for %}")
    assert len(started) == 1
    assert started[0].returncode is not None


def test_a_refusal_keeps_the_process() -> None:
    template = ChatTemplate("{{ raise_exception('no') if messages[0].role == 'system' else 'yes' }}")
    process = process_of(template)
    with pytest.raises(PromptError, match="refuses these messages: no"):
        template.render([{"role": "system", "content": ""}])
    assert template.render(HELLO) == "yes"
    assert process_of(template) == process


def test_a_dropped_template_ends_its_process() -> None:
    template = ChatTemplate(CHATML)
    process = process_of(template)
    del template
    gc.collect()
    assert is_gone(process)


def test_a_process_that_was_killed_is_replaced() -> None:
    template = ChatTemplate(CHATML)
    text = template.render(HELLO)
    for _ in range(3):
        process_of(template).kill()
        assert template.render(HELLO) == text


def test_a_process_that_is_killed_over_a_render_is_replaced() -> None:
    template = ChatTemplate("{% for a in range(300) %}{% for b in range(3000) %}{% endfor %}{% endfor %}done")
    threading.Timer(0.02, process_of(template).kill).start()
    assert template.render(HELLO) == "done"


@pytest.mark.skipif(sys.platform == "win32", reason="sends signals")
def test_the_process_ignores_ctrl_c() -> None:
    template = ChatTemplate(CHATML)
    process = process_of(template)
    process.send_signal(signal.SIGINT)
    assert template.render(HELLO)
    assert process_of(template) == process


@pytest.mark.skipif(sys.platform == "win32", reason="sends signals")
def test_ctrl_c_over_a_render_leaves_a_template_that_renders() -> None:
    template = ChatTemplate("{% if messages[0].role == 'system' %}" + LOOP + "{% endif %}ok")
    process = process_of(template)
    ctrl_c = threading.Timer(0.2, signal.pthread_kill, [threading.main_thread().ident, signal.SIGINT])
    with pytest.raises(KeyboardInterrupt):  # noqa: PT012  it may come at once
        ctrl_c.start()
        template.render([{"role": "system", "content": ""}])
    assert is_gone(process)
    assert template.render(HELLO) == "ok"


def test_the_process_ends_when_its_parent_is_killed() -> None:
    program = (
        "from lcspec.chat_template import ChatTemplate; import time;"
        "template = ChatTemplate('x'); print(template._worker._process.pid, flush=True); time.sleep(60)"
    )
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True) as parent:
        process = psutil.Process(int(parent.stdout.readline()))
        parent.kill()
    assert is_gone(process)


def test_threads_share_a_template() -> None:
    template = ChatTemplate("{{ messages[0].content }}")
    texts = [f"{i} " * (i % 7 * 5000) for i in range(60)]
    with ThreadPoolExecutor(4) as pool:
        rendered = pool.map(lambda text: template.render([{"role": "user", "content": text}]), texts)
        assert list(rendered) == texts


def test_the_process_finds_nothing_in_the_current_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("json", "signal", "jinja2", "markupsafe", "sitecustomize"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    assert render(CHATML)


def test_the_process_imports_the_standard_library_and_jinja2_only() -> None:
    imported = set()
    for node in ast.walk(ast.parse(Path(renderer.__file__).read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            imported |= {name.name.split(".")[0] for name in node.names}
        if isinstance(node, ast.ImportFrom):
            imported.add(str(node.module).split(".")[0])
    assert imported - sys.stdlib_module_names == {"jinja2"}


def test_python_that_can_not_be_started_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    with pytest.raises(PromptError, match="can't be started"):
        ChatTemplate(CHATML)


@pytest.mark.skipif(not shutil.which("false"), reason="needs the command false")
def test_a_process_that_does_not_answer_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", shutil.which("false"))
    with pytest.raises(PromptError, match="ended without an answer"):
        ChatTemplate(CHATML)


@pytest.mark.parametrize(("name", "value"), [("frozen", True), ("executable", ""), ("executable", None)])
def test_without_python_a_template_renders_here(name: str, value: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, name, value, raising=False)
    monkeypatch.setattr(subprocess, "Popen", None)
    template = ChatTemplate(CHATML, bos="<s>")
    assert template.render(HELLO) == "<s><|im_start|>user\nHello<|im_end|>\n<|im_start|>assistant\n"
    with pytest.raises(PromptError, match="can't be used"):
        ChatTemplate("{% for %}")
    with pytest.raises(PromptError, match="refuses these messages: no"):
        ChatTemplate("{{ raise_exception('no') }}").render(HELLO)
    with pytest.raises(PromptError, match="wrote more than 1 MiB"):
        ChatTemplate(BAD["output in pieces"]).render(HELLO)
    template.close()
    with pytest.raises(ClosedError):
        template.render(HELLO)


def test_an_engine_ends_the_process_of_its_template(tiny_llama: Path) -> None:
    with SpeculativeLM(tiny_llama) as lm:
        assert "template" not in vars(lm._prompts)
        assert lm.chat_prompt(HELLO) == lm.chat_prompt(HELLO)
        process = process_of(lm._prompts.template)
        assert process.is_running()
    assert is_gone(process)


@pytest.mark.real
def test_smollm2s_template_renders_as_it_is_documented(smollm2: Path) -> None:
    with Model(smollm2) as model:
        source = model.chat_template
    assert source is not None
    assert ChatTemplate(source, bos="<|im_start|>", eos="<|im_end|>").render(HELLO) == (
        "<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained by Hugging Face<|im_end|>\n"
        "<|im_start|>user\nHello<|im_end|>\n<|im_start|>assistant\n"
    )


@pytest.mark.skipif(sys.platform == "win32", reason="has no such signal")
def test_time_is_limited_where_the_parent_ignores_the_signal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(worker, "SECONDS", 0.5)
    before = signal.signal(signal.SIGPROF, signal.SIG_IGN)
    try:
        with pytest.raises(PromptError, match=r"ran longer than 0\.5 s"):
            render(LOOP)
    finally:
        signal.signal(signal.SIGPROF, before)
