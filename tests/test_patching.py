"""Patches of config files: only the lines needed change, and the new file reads as exactly the changed run."""

import difflib
import json
import os
import stat
from pathlib import Path

import pytest

from oomdoctor.applying import write
from oomdoctor.case import UserError, Value
from oomdoctor.configs.kinds import recognise
from oomdoctor.rewriting import File, rewritten, says
from oomdoctor.sources.config.reader import facts_of_text
from tests.program import ROOT, document, oomdoctor

CORPUS = sorted(path for path in (ROOT / "tests" / "corpus" / "configs").iterdir() if path.name != "expected.yaml")
CHANGES: list[dict[str, Value]] = [
    {"per_device_train_batch_size": 3, "gradient_accumulation_steps": 7},
    {"max_length": 640},
    {"gradient_checkpointing": "full"},
    {"optim": "adamw_bnb_8bit"},
    {"attn_implementation": "sdpa"},
    {"lora.r": 5},
]


def read(path: Path) -> File | None:
    text = path.read_text(encoding="utf-8")
    try:
        kind = recognise(text, str(path)).kind
    except UserError:
        return None
    return None if kind == "model" else File(str(path), kind, text, text)


FILES = {path.name: file for path in CORPUS if (file := read(path)) is not None}


def facts(file: File, text: str) -> dict[str, Value]:
    return {fact.key: fact.value for fact in facts_of_text(text, file.path, file.kind)}


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: next(iter(change)))
@pytest.mark.parametrize("name", FILES)
def test_a_patch_changes_only_what_is_needed_and_reads_as_intended(name: str, change: dict[str, Value]) -> None:
    file = FILES[name]
    before = facts(file, file.before)
    change = {key: value for key, value in change.items() if before.get(key) != value}
    text, keys = rewritten(file, change, before)
    if not keys or not says(file, text, {key: change[key] for key in keys}):
        return  # nothing is offered then; how often is another test
    old, new = file.before.splitlines(), text.splitlines()
    lines = [line for line in difflib.ndiff(old, new) if line[:1] in "+-"]
    removed, added = (sum(line[0] == sign for line in lines) for sign in "-+")
    # a value is replaced in its line; a key that was not there adds lines: one, or a block of at most four; in JSON a
    # comma on the line before as well
    assert removed <= len(keys) and added <= removed + 4 * len(keys)
    assert [line for line in old if "#" in line and line.split("#", 1)[1] not in text] == []
    if set(keys) <= set(before) and file.kind not in ("shell", "python"):
        assert removed == added <= len(keys)
    if file.kind != "card":  # a card's keys are its own
        after = facts(file, text)
        assert {key: after[key] for key in keys} == {key: change[key] for key in keys}
        assert all(after[key] == value for key, value in before.items() if key not in change)


def test_what_a_config_states_can_nearly_always_be_patched() -> None:
    stated = offered = 0
    for file in FILES.values():
        before = facts(file, file.before)
        for change in CHANGES:
            if change.keys() <= before.keys() and all(before[key] != value for key, value in change.items()):
                stated += 1
                text, keys = rewritten(file, change, before)
                offered += set(keys) == set(change) and says(file, text, change)
    assert stated > 60
    assert offered >= 0.75 * stated  # the rest say it in two places, work it out, or have no such value


YAML = """\
# my run
base_model: meta-llama/Llama-2-7b-hf   # the model
adapter: lora
lora_r: 8
lora_target_modules: [q_proj, v_proj]
micro_batch_size: 8    # as large as it goes
gradient_accumulation_steps: 2
sequence_len: 1024
datasets:
  - path: x
    type: alpaca
bf16: true
"""
PATCHED = YAML.replace("micro_batch_size: 8", "micro_batch_size: 1").replace("steps: 2", "steps: 16")
SCRIPT = """\
from transformers import TrainingArguments, Trainer
args = TrainingArguments(
    output_dir="out",
    per_device_train_batch_size=8,  # big
    gradient_accumulation_steps=2,
)
Trainer(model=model, args=args).train()
"""
ASKED = ("--gpus", "RTX 3090", "--no-gpu", "--no-input", "--set", "gradient_checkpointing=none")


def plan(path: Path, *arguments: str) -> dict[str, object]:
    return document("plan", "--config", path, *ASKED, *arguments)


def test_batch_and_accumulation_change_together_and_apply_writes_them(tmp_path: Path) -> None:
    path = tmp_path / "train.yaml"
    path.write_text(YAML)
    path.chmod(0o640)
    shown = plan(path)
    assert path.read_text() == YAML and os.listdir(tmp_path) == ["train.yaml"]
    patch = shown["patches"][0]  # type: ignore[index]
    assert set(patch["files"][0]["keys"]) == {"per_device_train_batch_size", "gradient_accumulation_steps"}
    assert "-micro_batch_size: 8    # as large as it goes\n" in patch["files"][0]["diff"]
    done = plan(path, "--apply", "--yes")
    assert path.read_text() == PATCHED
    assert done["patches"] == shown["patches"]  # as they were before the file was written
    assert stat.S_IMODE(path.stat().st_mode) == 0o640
    (written,) = done["written"]  # type: ignore[misc]
    assert Path(written["backup"]).read_text() == YAML
    assert stat.S_IMODE(Path(written["backup"]).stat().st_mode) == 0o640
    os.system(written["undo"])  # as a person would
    assert path.read_text() == YAML and os.listdir(tmp_path) == ["train.yaml"]


def test_a_backup_is_never_overwritten(tmp_path: Path) -> None:
    path = tmp_path / "train.yaml"
    path.write_text(YAML)
    (tmp_path / "train.yaml.bak-1").write_text("mine")
    done = write(File(str(path), "axolotl", YAML, PATCHED))
    assert done.backup.endswith(".bak-2") and (tmp_path / "train.yaml.bak-1").read_text() == "mine"


def test_without_an_answer_nothing_is_written(tmp_path: Path) -> None:
    path = tmp_path / "train.yaml"
    path.write_text(YAML)
    done = oomdoctor("plan", "--config", path, *ASKED, "--apply")
    assert done.returncode == 2 and "--yes" in done.stderr
    assert path.read_text() == YAML and os.listdir(tmp_path) == ["train.yaml"]


def test_a_file_that_was_changed_meanwhile_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "train.yaml"
    path.write_text(YAML + "# a note\n")
    with pytest.raises(UserError):
        write(File(str(path), "axolotl", YAML, PATCHED))
    assert path.read_text() == YAML + "# a note\n" and os.listdir(tmp_path) == ["train.yaml"]


def test_links_line_ends_and_a_byte_order_mark_stay(tmp_path: Path) -> None:
    real, link = tmp_path / "real.yaml", tmp_path / "link.yaml"
    windows = YAML.replace("\n", "\r\n")
    real.write_bytes(b"\xef\xbb\xbf" + windows.encode())
    link.symlink_to(real)
    plan(link, "--apply", "--yes")
    assert link.is_symlink()
    assert real.read_bytes() == b"\xef\xbb\xbf" + PATCHED.replace("\n", "\r\n").encode()


def test_a_script_is_shown_and_only_written_where_it_is_named(tmp_path: Path) -> None:
    path = tmp_path / "train.py"
    path.write_text(SCRIPT)
    model = ("--set", "model=meta-llama/Llama-2-7b-hf", "--set", "method=lora", "--set", "torch_dtype=bfloat16",
             "--set", "max_length=1024")  # fmt: skip
    shown = plan(path, *model, "--apply", "--yes")
    assert "-    per_device_train_batch_size=8,  # big" in shown["patches"][0]["files"][0]["diff"]  # type: ignore[index]
    assert shown["written"] == [] and path.read_text() == SCRIPT
    plan(path, *model, "--apply", str(path), "--yes")
    assert path.read_text() == SCRIPT.replace("size=8", "size=1").replace("steps=2", "steps=16")
    done = oomdoctor("plan", "--config", path, *ASKED, *model, "--apply", tmp_path / "other.py", "--yes")
    assert done.returncode == 2 and "other.py" in done.stderr


@pytest.mark.parametrize(
    ("kind", "text", "change", "wanted"),
    [
        ("transformers", '{"output_dir": "o", "per_device_train_batch_size": 8}', {"gradient_accumulation_steps": 4},
         '{"output_dir": "o", "per_device_train_batch_size": 8, "gradient_accumulation_steps": 4}'),
        ("shell", "python t.py --model_name_or_path gpt2 --per_device_train_batch_size=8 # x\n",
         {"per_device_train_batch_size": 2},
         "python t.py --model_name_or_path gpt2 --per_device_train_batch_size=2 # x\n"),
        ("shell", "torchrun t.py \\\n  --fp16 True \\\n  --per_device_train_batch_size 8\n",
         {"gradient_accumulation_steps": 4},
         "torchrun t.py \\\n  --fp16 True \\\n  --per_device_train_batch_size 8 --gradient_accumulation_steps 4\n"),
        ("card", "lora: {r: 16} # keep\nmax_length: 2048\n", {"lora.r": 4}, "lora: {r: 4} # keep\nmax_length: 2048\n"),
        ("card", "model: gpt2\nmax_length: 2048", {"gradient_checkpointing": "full"},
         "model: gpt2\nmax_length: 2048\ngradient_checkpointing: full"),
    ],
)  # fmt: skip
def test_values_change_in_their_place(
    kind: str, text: str, change: dict[str, Value], wanted: str, tmp_path: Path
) -> None:
    file = File(str(tmp_path / "x"), kind, text, text)
    new, keys = rewritten(file, change, {"framework": "transformers"})
    assert (new, keys) == (wanted, list(change))
    assert says(file, new, change)
    if text.startswith("{"):
        assert json.loads(new)


def test_a_quantization_that_is_concluded_from_several_settings_reads_back() -> None:
    file = FILES["llamafactory-lora-sft.yaml"]
    change: dict[str, Value] = {"quantization": "nf4-double"}
    text, keys = rewritten(file, change, {"framework": "llamafactory"})
    assert keys == ["quantization"] and says(file, text, change)
    assert "quantization_bit: 4\n" in text


def test_a_name_of_a_module_stays_one() -> None:
    script = "model = AutoModelForCausalLM.from_pretrained('gpt2', torch_dtype=torch.float32)\n"
    file = File("t.py", "python", script, script)
    text, _ = rewritten(file, {"torch_dtype": "bfloat16"}, {"framework": "transformers"})
    assert text == script.replace("float32", "bfloat16")


def test_what_would_contradict_another_setting_is_not_offered() -> None:
    for text, change in (
        (YAML + "flash_attention: true\n", {"attn_implementation": "sdpa"}),
        (YAML.replace("r: 8", "r: &r 8") + "lora_alpha: *r\n", {"lora.r": 4}),  # the anchor would change both
    ):
        file = File("t.yaml", "axolotl", text, text)
        new, keys = rewritten(file, change, {"framework": "axolotl"})  # type: ignore[arg-type]
        assert not keys or not says(file, new, change) or "lora_alpha" in text  # type: ignore[arg-type]


def test_what_is_worked_out_elsewhere_is_not_offered() -> None:
    script = SCRIPT.replace("size=8", "size=batch")
    file = File("t.py", "python", script, script)
    _, keys = rewritten(file, {"per_device_train_batch_size": 1}, {"framework": "transformers"})
    assert keys == []


TRAINER = """model_name_or_path: meta-llama/Llama-2-7b-hf
finetuning_type: lora
stage: sft
cutoff_len: 2048
per_device_train_batch_size: {batch}
gradient_accumulation_steps: 2
bf16: true
"""


def _plan(folder: Path, *options: str, **files: str) -> dict[str, object]:
    """The document of a plan for one RTX 3090, with these configs."""
    paths = []
    for name, content in files.items():
        stem, _, ending = name.rpartition("_")
        paths.append(folder / f"{stem}.{ending}")
        paths[-1].write_text(content)
    found: dict[str, object] = document(
        "plan", "--config", *paths, "--gpus", "RTX 3090", "--no-gpu", "--no-input", *options
    )
    return found


def test_an_anchored_value_is_left_alone_and_the_plan_is_still_given(tmp_path: Path) -> None:
    config = TRAINER.format(batch="&b 32") + "per_device_eval_batch_size: *b\n"
    found = _plan(tmp_path, train_yaml=config)
    steps = {step["rule"]: step for step in found["patches"]}  # type: ignore[index, attr-defined]
    assert steps["smaller-batch"]["problem"] and not steps["smaller-batch"]["files"]


def test_a_batch_that_could_not_be_read_is_not_overwritten(tmp_path: Path) -> None:
    found = _plan(tmp_path, train_yaml=TRAINER.format(batch="0x20"))
    assert all(not step["files"] for step in found["patches"] if step["rule"] == "smaller-batch")  # type: ignore[attr-defined]


def test_a_setting_that_stands_in_two_files_changes_in_both_or_in_none(tmp_path: Path) -> None:
    both = {"one_yaml": TRAINER.format(batch=32), "two_yaml": TRAINER.format(batch=32)}
    found = _plan(tmp_path, **both)
    files = [{file["file"] for file in step["files"]} for step in found["patches"]]  # type: ignore[attr-defined]
    names = {str(tmp_path / "one.yaml"), str(tmp_path / "two.yaml")}
    assert files and all(each in (set(), names) for each in files)


def test_half_a_plan_is_never_written(tmp_path: Path) -> None:
    config = tmp_path / "train.yaml"
    text = (
        TRAINER.format(batch="&b 32").replace("lora", "full") + "optim: adamw_torch\nper_device_eval_batch_size: *b\n"
    )
    config.write_text(text)
    done = oomdoctor("plan", "--config", config, "--gpus", "RTX 3090", "--no-gpu", "--apply", "--yes")
    assert done.returncode == 2 and len(done.stderr.splitlines()) == 1
    assert config.read_text() == text and list(tmp_path.iterdir()) == [config]
