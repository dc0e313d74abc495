import json
import re
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

import pytest

from lcspec import PromptError
from lcspec.chat_template import ChatTemplate

CHATML = (
    "{{ bos_token }}{% for message in messages %}"
    "{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
HELLO = [{"role": "user", "content": "Hello"}]


def render(source: str, messages: Sequence[Mapping[str, str]] = HELLO, bos: str = "<s>", eos: str = "</s>") -> str:
    return ChatTemplate(source, bos=bos, eos=eos).render(messages)


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
