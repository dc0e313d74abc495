"""From names to models: the catalog, the hub's names, paths, and what is on this machine."""

import errno
import os
import re
import time
from pathlib import Path

import pytest
from huggingface_hub import constants
from stand_in import COMMIT, NEWER_COMMIT, StandIn, sha256, write_wheel

from lcspec import ModelError
from lcspec.hub import Entry, LocalModel, cached_path, catalog, entry_of, find_model, local_models, remove
from lcspec.hub.cache import fetch_lock
from lcspec.hub.catalog import user_catalog_path
from lcspec.hub.names import pick_any, pick_file

BODY = b"GGUF" + bytes(range(256)) * 100

pytestmark = pytest.mark.usefixtures("hub_cache")


# the shipped catalog


def test_the_catalog_has_the_models_that_lcspec_promises() -> None:
    assert {"smollm2-135m", "qwen2.5-coder-1.5b", "qwen2.5-coder-0.5b"} <= catalog().keys()


@pytest.mark.parametrize("entry", catalog().values(), ids=catalog())
def test_a_catalog_entry_is_complete(entry: Entry) -> None:
    assert re.fullmatch(r"[a-z0-9.-]+", entry.name)
    assert entry.use
    assert entry.licence
    assert entry.architecture
    assert entry.pre_tokenizer
    assert entry.size is not None
    assert entry.size > 1_000_000
    assert entry.memory is not None
    assert entry.size < entry.memory < 3 * entry.size
    assert entry.hub.revision is None or re.fullmatch(r"[0-9a-f]{40}", entry.hub.revision)
    if entry.wheels is not None:
        assert len(set(entry.wheels.requirements)) == entry.wheels.parts >= 1
        for requirement in entry.wheels.requirements:
            assert re.fullmatch(r"[a-z0-9-]+==\d+(\.\d+)*", requirement)
        assert "/" in entry.wheels.member


def test_no_two_entries_share_a_file() -> None:
    files = [file for entry in catalog().values() for file in entry.files]
    assert len({file.name for file in files}) == len({file.sha256 for file in files}) == len(files)


def test_recommended_drafts_are_in_the_catalog_and_of_the_same_vocabulary() -> None:
    for entry in catalog().values():
        for draft in entry.drafts:
            other = catalog()[draft.model]
            assert (other.architecture, other.pre_tokenizer) == (entry.architecture, entry.pre_tokenizer)
            assert other.size is not None
            assert entry.size is not None
            assert other.size < entry.size
            assert (draft.accepted is None) == (draft.speed is None) == (draft.measured == "")


# a user's own catalog

OWN_CATALOG = """
[[model]]
name = "mine"
use = "my notes"
hub = { repository = "someone/Tiny-GGUF" }
files = [{ name = "tiny.q8_0.gguf" }]
"""


def wheels(**changed: str) -> str:
    """Return the catalog with wheels, some of whose values are others."""
    values = {"package": '"tiny"', "version": '"1.0"', "parts": "1", "member": '"*/x"'} | changed
    return OWN_CATALOG + f"wheels = {{ {', '.join(f'{name} = {value}' for name, value in values.items())} }}\n"


def write_own_catalog(text: str) -> Path:
    path = user_catalog_path()
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def test_a_catalog_of_ones_own_adds_to_the_shipped_one(hub: StandIn) -> None:
    shipped = catalog().keys()
    write_own_catalog(OWN_CATALOG)
    assert catalog().keys() - shipped == {"mine"}
    hub.publish(BODY)
    assert find_model("mine", download=True).read_bytes() == BODY


def test_a_catalog_of_ones_own_is_read_again_when_it_changed() -> None:
    path = write_own_catalog(OWN_CATALOG)
    assert "mine" in catalog()
    path.write_text(OWN_CATALOG.replace("mine", "yours"))
    os.utime(path, ns=(0, path.stat().st_mtime_ns + 1))
    assert "yours" in catalog()
    assert "mine" not in catalog()
    path.unlink()
    assert "yours" not in catalog()


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("[[model]", "the catalog: "),
        (f"model = {chr(91) * 5000}", "the catalog: "),
        ("", "the catalog has no 'model'"),
        ("[[model]]\nuse = 'x'", "the catalog has no 'name'"),
        ("[[model]]\nname = 'a b'", "'a b': that is not a name of letters"),
        (OWN_CATALOG.replace("files", "flies"), "mine has no 'files'"),
        (OWN_CATALOG.replace("use", "uses"), "mine: .*unexpected keyword argument 'uses'"),
        (OWN_CATALOG.replace("someone/", ""), "mine: 'Tiny-GGUF' is not owner/repository"),
        (OWN_CATALOG.replace("tiny.q8_0.gguf", "../../x.gguf"), "mine: '../../x.gguf' is not the name of a GGUF file"),
        (OWN_CATALOG.replace("tiny.q8_0.gguf", "tiny.bin"), "mine: 'tiny.bin' is not the name of a GGUF file"),
        (OWN_CATALOG.replace('gguf"', 'gguf", size = -1'), "mine: tiny.q8_0.gguf can't have -1 bytes"),
        (OWN_CATALOG.replace('gguf"', 'gguf", size = "1"'), "mine: tiny.q8_0.gguf can't have '1' bytes"),
        (OWN_CATALOG.replace('gguf"', 'gguf", sha256 = "1"'), "mine: '1' is no SHA-256"),
        (OWN_CATALOG.replace('[{ name = "tiny.q8_0.gguf" }]', "[]"), "mine: it has no files"),
        (OWN_CATALOG.replace('gguf"', 'gguf", size = true'), "mine: tiny.q8_0.gguf can't have True bytes"),
        (OWN_CATALOG.replace('"my notes"', "3"), "mine: use is 3, not a line of text"),
        (OWN_CATALOG.replace('"my notes"', '"a\\u001bb"'), r"mine: use is 'a\\x1bb', not a line of text"),
        (OWN_CATALOG + "licence = []", r"mine: licence is \[\], not a line of text"),
        (OWN_CATALOG + 'memory = "1"', "mine: memory is '1', not a number of bytes"),
        (OWN_CATALOG.replace('GGUF" }', 'GGUF", revision = 3 }'), "mine: 3 is not the name of a revision"),
        (OWN_CATALOG.replace('GGUF" }', 'GGUF", revision = "/etc" }'), "mine: '/etc' is not the name of a revision"),
        (OWN_CATALOG.replace("Tiny-GGUF", "a--b"), "mine: 'someone/a--b' is not the name of a repository"),
        (wheels(package='"--index-url=x"'), "mine: '--index-url=x' is not the name of a Python package"),
        (wheels(package='"a b"'), "mine: 'a b' is not the name of a Python package"),
        (wheels(version='"1 --pre"'), "mine: '1 --pre' is not the version of a Python package"),
        (wheels(version="1"), "mine: 1 is not the version of a Python package"),
        (wheels(parts="0"), "mine: parts is 0, not a number up to 999"),
        (wheels(parts="true"), "mine: parts is True, not a number up to 999"),
        (wheels(parts="2"), "mine: of several parts each needs its own {part} in package"),
        (wheels(member="1"), "mine: member is 1, not a pattern"),
    ],
)
def test_a_broken_catalog_is_an_error_of_one_line(text: str, reason: str) -> None:
    path = write_own_catalog(text)
    with pytest.raises(ModelError, match=f"the catalog {re.escape(str(path))} can't be used: {reason}") as error:
        find_model("smollm2-135m")
    assert len(str(error.value).splitlines()) == 1


# names of the hub


def publish(hub: StandIn, *names: str) -> None:
    for number, name in enumerate(names):
        hub.publish(BODY + bytes([number]), name)


def test_a_file_of_a_repository_is_fetched_by_its_name(hub: StandIn) -> None:
    publish(hub, "tiny.gguf", "below/here/tiny.gguf")
    assert find_model("hf:someone/Tiny-GGUF/tiny.gguf", download=True).read_bytes() == BODY + b"\0"
    assert find_model("hf:someone/Tiny-GGUF/below/here/tiny.gguf", download=True).read_bytes() == BODY + b"\1"


def test_a_revision_can_be_named(hub: StandIn) -> None:
    hub.publish(BODY, "tiny.gguf")
    hub.publish(BODY + b"new", "tiny.gguf", NEWER_COMMIT)
    name = "hf:someone/Tiny-GGUF/tiny.gguf"
    assert find_model(f"{name}@{NEWER_COMMIT}", download=True).read_bytes() == BODY + b"new"
    assert find_model(name, download=True).read_bytes() == BODY
    hub.main = NEWER_COMMIT
    assert find_model(f"{name}@{COMMIT}", download=True).read_bytes() == BODY


@pytest.mark.parametrize(
    ("wanted", "number"),
    [(":Q8_0", 1), (":q8_0", 1), (":Q4_K_M", 2), ("", 2), (":Q2_K", 4), (f":Q8_0@{COMMIT}", 1)],
)
def test_a_quantization_is_picked_from_the_repository(hub: StandIn, wanted: str, number: int) -> None:
    publish(
        hub,
        "README.md",
        "Tiny.Q8_0.gguf",
        "Tiny-Q4_K_M.gguf",
        "mmproj-Tiny-Q4_K_M.gguf",
        "Q2_K/Tiny-Q2_K-00001-of-00002.gguf",
        "Q2_K/Tiny-Q2_K-00002-of-00002.gguf",
    )
    path = find_model(f"hf:someone/Tiny-GGUF{wanted}", download=True)
    assert path.read_bytes() == BODY + bytes([number])
    hub.refusal = 503, ""
    assert find_model(f"hf:someone/Tiny-GGUF{wanted}") == path, "what is here is found without the hub"


def test_a_split_model_is_fetched_whole(hub: StandIn) -> None:
    publish(hub, *(f"tiny-0000{part}-of-00003.gguf" for part in (1, 2, 3)))
    path = find_model("hf:someone/Tiny-GGUF/tiny-00002-of-00003.gguf", download=True)
    assert path.name == "tiny-00001-of-00003.gguf"
    assert [path.with_name(f"tiny-0000{part}-of-00003.gguf").read_bytes()[-1] for part in (1, 2, 3)] == [0, 1, 2]


def test_a_split_model_of_which_a_part_is_missing_is_not_here(hub: StandIn) -> None:
    publish(hub, "tiny-00001-of-00002.gguf", "tiny-00002-of-00002.gguf")
    name = "hf:someone/Tiny-GGUF/tiny-00001-of-00002.gguf"
    find_model(name, download=True).with_name("tiny-00002-of-00002.gguf").unlink()
    with pytest.raises(ModelError, match="is not on this machine"):
        find_model(name)
    assert [(model.name, model.is_complete) for model in local_models()] == [(name, False)]
    find_model(name, download=True)
    assert [(model.name, model.is_complete) for model in local_models()] == [(name, True)]


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("hf:someone/Tiny-GGUF:Q3_K", "has no GGUF file of type Q3_K; it has Tiny.Q8_0.gguf"),
        ("hf:someone/Tiny-GGUF/absent.gguf", "does not have this file"),
        (f"hf:someone/Tiny-GGUF:Q8_0@{NEWER_COMMIT}", "does not have this revision"),
        (f"hf:someone/Tiny-GGUF/Tiny.Q8_0.gguf@{NEWER_COMMIT}", "does not have this revision"),
        ("hf:someone/absent:Q8_0", "does not exist, or is private"),
        ("hf:someone/absent/x.gguf", "does not exist, or is private"),
    ],
)
def test_what_the_hub_does_not_have_is_an_error_that_says_so(hub: StandIn, name: str, reason: str) -> None:
    publish(hub, "Tiny.Q8_0.gguf")
    with pytest.raises(ModelError, match=reason) as error:
        find_model(name, download=True)
    assert len(str(error.value).splitlines()) == 1


def test_a_repository_without_models_is_an_error(hub: StandIn) -> None:
    publish(hub, "README.md", "model.safetensors")
    with pytest.raises(ModelError, match="has no GGUF file of type Q4_K_M; it has none at all"):
        find_model("hf:someone/Tiny-GGUF", download=True)


@pytest.mark.parametrize(
    "name",
    [
        "hf:",
        "hf:tiny",
        "hf:someone/tiny/",
        "hf:someone/tiny/x.bin",
        "hf:someone/tiny/../x.gguf",
        "hf:someone/tiny//x.gguf",
        "hf:someone/tiny/a b.gguf",
        "hf:someone/tiny:",
        "hf:someone/tiny:Q8_0@",
        "hf:someone/tiny/x.gguf:Q8_0",
        "hf:some one/tiny",
        "hf:someone/tiny/-x.gguf",
        "hf:../..:Q4_K_M",
        "hf:a--b/c",
        "hf:a/b.git",
        f"hf:someone/{'x' * 300}",
        "hf:a/b:ZZZ@/",
        "hf:a/b:ZZZ@/etc",
        "hf:a/b:ZZZ@a/../../..",
    ],
)
def test_a_malformed_name_of_the_hub_is_an_error(hub: StandIn, name: str) -> None:
    with pytest.raises(ModelError, match="is not the name of a model on the hub"):
        find_model(name, download=True)
    assert hub.tokens == set(), "the hub is not asked"


def test_without_permission_the_hub_is_not_asked(hub: StandIn) -> None:
    publish(hub, "Tiny.Q8_0.gguf")
    for name in ("hf:someone/Tiny-GGUF:Q8_0", "hf:someone/Tiny-GGUF/Tiny.Q8_0.gguf"):
        with pytest.raises(ModelError, match="on this machine"):
            find_model(name)
    assert hub.tokens == set()


def test_offline_a_quantization_that_is_here_is_found(hub: StandIn, monkeypatch: pytest.MonkeyPatch) -> None:
    publish(hub, "Tiny.Q8_0.gguf", "Tiny.Q2_K.gguf")
    path = find_model("hf:someone/Tiny-GGUF:Q8_0", download=True)
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", True)
    assert find_model("hf:someone/Tiny-GGUF:Q8_0", download=True) == path
    with pytest.raises(ModelError, match="HF_HUB_OFFLINE forbids to ask"):
        find_model("hf:someone/Tiny-GGUF:Q2_K", download=True)


def test_without_a_hub_a_name_of_it_is_an_error(no_hub: str) -> None:
    with pytest.raises(ModelError, match=f"{no_hub} does not answer"):
        find_model("hf:someone/Tiny-GGUF:Q8_0", download=True)
    with pytest.raises(ModelError, match=f"can't be fetched from {no_hub}: it does not answer"):
        find_model("hf:someone/Tiny-GGUF/tiny.gguf", download=True)


def test_picking_prefers_the_shortest_name_and_whole_words() -> None:
    names = ["a-UD-Q4_K_M.gguf", "a-Q4_K_M.gguf", "a-IQ4_K_M.gguf", "a-Q4_K_M-00002-of-00002.gguf", "Q4_K_M.txt"]
    assert pick_file(names, "Q4_K_M") == "a-Q4_K_M.gguf"
    assert pick_file(["a-IQ4_NL.gguf"], "Q4_NL") is None
    assert pick_file(["aQ8_0.gguf"], "Q8_0") is None
    assert pick_file(["Q8_0.gguf"], "q8_0") == "Q8_0.gguf"
    assert pick_any(["b-00002-of-00002.gguf", "mmproj.gguf", "b-00001-of-00002.gguf"]) == "b-00001-of-00002.gguf"


# paths


@pytest.fixture
def tiny_is_here(own_cache: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A catalog of two models, the first of which is on this machine."""
    write_own_catalog("".join(own_entry(name) for name in ("tiny", "absent")))
    path = own_cache / "models" / "tiny-model-1.2.0" / "tiny.q8_0.gguf"
    path.parent.mkdir(parents=True)
    path.write_bytes(BODY)
    return path


def own_entry(name: str) -> str:
    return f"""
[[model]]
name = "{name}"
licence = "MIT"
hub = {{ repository = "someone/Tiny-GGUF", revision = "{COMMIT}" }}
wheels = {{ package = "tiny-model", version = "1.2.0", parts = 1, member = "*/data/*.bin" }}
files = [{{ name = "{name}.q8_0.gguf", size = {len(BODY)}, sha256 = "{sha256(BODY)}" }}]
"""


def test_a_catalog_name_gives_the_file_that_is_here(tiny_is_here: Path) -> None:
    assert find_model("tiny") == tiny_is_here
    assert find_model("tiny", download=True) == tiny_is_here


def test_a_file_of_another_size_is_not_the_catalog_model(tiny_is_here: Path) -> None:
    tiny_is_here.write_bytes(BODY[:-1])
    with pytest.raises(ModelError, match="tiny is not on this machine"):
        find_model("tiny")


def test_a_model_that_is_not_here_is_fetched_only_on_request(tiny_is_here: Path, shelf: Path) -> None:
    write_wheel(shelf, "tiny-model", {"tiny_model/data/weights.bin": BODY})
    with pytest.raises(ModelError, match=r"absent is not on this machine: `lcspec pull absent`, or pass download=True"):
        find_model("absent")
    assert list(tiny_is_here.parent.glob("*.gguf")) == [tiny_is_here]
    path = find_model("absent", download=True)
    assert path.read_bytes() == BODY
    assert find_model("absent") == path


@pytest.mark.parametrize(
    ("name", "hint"),
    [("tinny", "did you mean tiny?"), ("Tiny", "did you mean tiny?"), ("no such model", "`lcspec models --all`")],
)
def test_an_unknown_name_is_an_error_with_a_hint(tiny_is_here: Path, name: str, hint: str) -> None:
    with pytest.raises(ModelError, match=f"'{name}' is neither a file nor in the catalog; {re.escape(hint)}"):
        find_model(name, download=True)


def test_a_path_is_taken_as_it_is(tmp_path: Path, tiny_is_here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "my model.bin"
    file.write_bytes(BODY)
    monkeypatch.chdir(tmp_path)
    assert find_model(file) == file
    assert find_model(str(file)) == file
    assert find_model("my model.bin") == Path("my model.bin")
    assert find_model("./my model.bin").samefile(file)
    assert entry_of(str(file), ask_hub=True) is None


@pytest.mark.parametrize("path", ["nowhere.gguf", "nowhere/at/all", Path("nowhere")])
def test_a_path_needs_no_file_yet(tiny_is_here: Path, path: str | Path) -> None:
    assert find_model(path) == Path(path)


def test_a_tilde_is_the_home_folder(tmp_path: Path, tiny_is_here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    assert find_model("~/models/mine.gguf") == tmp_path / "models" / "mine.gguf"
    assert find_model(Path("~/mine.gguf")) == tmp_path / "mine.gguf"


@pytest.mark.parametrize("name", ["", "a" * 300, "a\0b"])
def test_odd_names_are_unknown_models(name: str) -> None:
    with pytest.raises(ModelError, match="neither a file nor in the catalog"):
        find_model(name)


def test_an_unknown_home_is_left_as_it_is() -> None:
    assert find_model("~nouser/x.gguf") == Path("~nouser/x.gguf")


# what is here


def here(name: str) -> LocalModel:
    (model,) = [model for model in local_models() if model.name == name]
    return model


def test_the_models_of_both_caches_are_listed(hub: StandIn, tiny_is_here: Path) -> None:
    publish(hub, "other.gguf", "absent.q8_0.gguf")
    hub.publish(BODY, "absent.q8_0.gguf")
    other = find_model("hf:someone/Tiny-GGUF/other.gguf", download=True)
    find_model(f"hf:someone/Tiny-GGUF/other.gguf@{COMMIT}", download=True)
    absent = find_model("absent", download=True)
    assert [(model.name, model.files, model.size, model.licence) for model in local_models()] == [
        ("absent", (absent,), len(BODY), "MIT"),
        ("hf:someone/Tiny-GGUF/other.gguf", (other,), len(BODY) + 1, ""),
        ("tiny", (tiny_is_here,), len(BODY), "MIT"),
    ]


def test_a_model_is_last_used_when_it_was_last_found(hub: StandIn, tiny_is_here: Path) -> None:
    long_ago = time.time() - 1e6
    os.utime(tiny_is_here, (long_ago, long_ago))
    assert here("tiny").last_used == pytest.approx(long_ago)
    before = time.time()
    find_model("tiny")
    assert before - 1 < here("tiny").last_used < time.time() + 1
    assert tiny_is_here.stat().st_mtime == pytest.approx(long_ago)


def test_a_file_of_ones_own_is_not_touched(tmp_path: Path) -> None:
    path = tmp_path / "mine.gguf"
    path.write_bytes(BODY)
    os.utime(path, (1e9, 1e9))
    find_model(path)
    assert path.stat().st_atime == 1e9


def test_without_caches_no_model_is_here() -> None:
    assert local_models() == []


def test_a_removed_model_of_the_hub_frees_its_bytes(hub: StandIn, hub_cache: Path) -> None:
    publish(hub, "one.gguf", "two.gguf")
    find_model("hf:someone/Tiny-GGUF/one.gguf", download=True)
    two = find_model("hf:someone/Tiny-GGUF/two.gguf", download=True)
    assert remove(here("hf:someone/Tiny-GGUF/one.gguf")) == len(BODY) + 1
    assert [model.name for model in local_models()] == ["hf:someone/Tiny-GGUF/two.gguf"]
    assert two.read_bytes() == BODY + b"\1"
    assert sum(path.stat().st_size for path in hub_cache.glob("**/blobs/*")) == len(BODY) + 1


def test_contents_that_another_revision_shares_stay(hub: StandIn) -> None:
    hub.publish(BODY, "tiny.gguf")
    hub.publish(BODY, "tiny.gguf", NEWER_COMMIT)
    name = "hf:someone/Tiny-GGUF/tiny.gguf"
    find_model(name, download=True)
    newer = find_model(f"{name}@{NEWER_COMMIT}", download=True)
    assert remove(here(name)) == 0
    assert newer.read_bytes() == BODY
    assert remove(here(f"{name}@{NEWER_COMMIT}")) == len(BODY)
    assert local_models() == []


def test_a_removed_split_model_leaves_no_part(hub: StandIn, hub_cache: Path) -> None:
    publish(hub, "tiny-00001-of-00002.gguf", "tiny-00002-of-00002.gguf")
    find_model("hf:someone/Tiny-GGUF/tiny-00001-of-00002.gguf", download=True)
    assert remove(here("hf:someone/Tiny-GGUF/tiny-00001-of-00002.gguf")) == 2 * (len(BODY) + 1)
    assert list(hub_cache.glob("**/blobs/*")) == []


def test_a_removed_wheel_model_is_gone(tiny_is_here: Path) -> None:
    assert remove(here("tiny")) == len(BODY)
    assert not tiny_is_here.exists()
    assert cached_path(catalog()["tiny"]) is None


def test_a_link_to_a_file_of_ones_own_is_removed_and_the_file_stays(tiny_is_here: Path, tmp_path: Path) -> None:
    mine = tmp_path / "blobs" / "mine.gguf"
    mine.parent.mkdir()
    mine.write_bytes(BODY)
    tiny_is_here.unlink()
    tiny_is_here.symlink_to(mine)
    assert remove(here("tiny")) == 0
    assert not tiny_is_here.is_symlink()
    assert mine.read_bytes() == BODY


def test_models_are_removed_from_caches_behind_links(hub: StandIn, tiny_is_here: Path, tmp_path: Path) -> None:
    publish(hub, "one.gguf")
    find_model("hf:someone/Tiny-GGUF/one.gguf", download=True)
    for folder in ("hub", "cache"):
        (tmp_path / folder).rename(tmp_path / f"real {folder}")
        (tmp_path / folder).symlink_to(tmp_path / f"real {folder}")
    assert remove(here("hf:someone/Tiny-GGUF/one.gguf")) == len(BODY) + 1
    assert remove(here("tiny")) == len(BODY)
    assert local_models() == []
    assert list((tmp_path / "real hub").glob("**/blobs/*")) == []


def test_a_model_of_the_hub_is_not_mistaken_for_one_of_wheels(own_cache: Path) -> None:
    path = own_cache / "models" / "SmolLM2-135M-Instruct.Q4_1.gguf"
    path.parent.mkdir(parents=True)
    path.write_bytes(BODY)
    os.truncate(path, catalog()["smollm2-135m"].size or 0)
    assert find_model("smollm2-135m") == path, "where it has been since the first release"
    with pytest.raises(ModelError, match="is not on this machine"):
        find_model("hf:evil/x/SmolLM2-135M-Instruct.Q4_1.gguf")
    shipped = catalog()["smollm2-135m"]
    write_own_catalog(
        f"""[[model]]
name = "mine"
hub = {{ repository = "someone/x" }}
wheels = {{ package = "mine", version = "1", parts = 1, member = "*" }}
files = [{{ name = "{shipped.files[0].name}", size = {shipped.size} }}]
"""
    )
    with pytest.raises(ModelError, match="mine is not on this machine"):
        find_model("mine")


def test_what_is_no_file_is_not_listed(hub: StandIn, tiny_is_here: Path) -> None:
    publish(hub, "one.gguf")
    one = find_model("hf:someone/Tiny-GGUF/one.gguf", download=True)
    for folder in (one.parent, tiny_is_here.parent):
        (folder / "dangling.gguf").symlink_to("nowhere")
        (folder / "folder.gguf").mkdir()
    (tiny_is_here.parents[1] / ".fetch-x.gguf").mkdir()
    assert [model.name for model in local_models()] == ["hf:someone/Tiny-GGUF/one.gguf", "tiny"]


def test_an_abandoned_fetch_of_wheels_is_incomplete_and_can_be_removed(tiny_is_here: Path) -> None:
    staging = tiny_is_here.parent / ".fetch-absent.q8_0.gguf"
    staging.mkdir()
    (staging / "joined").write_bytes(BODY[:100])
    assert not here("absent").is_complete
    with fetch_lock(staging), pytest.raises(ModelError, match="absent can't be deleted: another process fetches it"):
        remove(here("absent"))
    assert remove(here("absent")) == 100
    assert not staging.exists()
    assert tiny_is_here.exists()


def test_what_is_left_of_a_split_model_can_be_removed(hub: StandIn, hub_cache: Path) -> None:
    publish(hub, "tiny-00001-of-00002.gguf", "tiny-00002-of-00002.gguf")
    name = "hf:someone/Tiny-GGUF/tiny-00001-of-00002.gguf"
    find_model(name, download=True).unlink()
    assert not here(name).is_complete
    assert remove(here(name)) == len(BODY) + 1
    assert local_models() == []


def test_a_model_that_cannot_be_deleted_is_an_error_of_one_line(
    tiny_is_here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(path: Path, missing_ok: bool = False) -> None:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS), str(path))

    monkeypatch.setattr(Path, "unlink", refuse)
    with pytest.raises(ModelError, match=r"tiny can't be deleted: Read-only file system: .*tiny.q8_0.gguf"):
        remove(here("tiny"))
