"""Two real training steps with the edits made: the Trainer, TRL's trainers, PEFT, and a loop of one's own.

Edits that go together are made together here; with OOMDOCTOR_EACH_EDIT=1 each is trained with by itself.
"""

import os

import pytest

from oomdoctor.edits.render import hows
from tests.edits.runs import FULL
from tests.edits.test_real_libraries import CONFIGS, HAS_TRL, INSTALLED, ONE_CARD, edits

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

from tests.edits.training import common, possible, samples, texts, tiny, tokenizer, trained  # noqa: E402

EACH = os.environ.get("OOMDOCTOR_EACH_EDIT") == "1"


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """A folder with a tiny Llama and its tokenizer."""
    folder = tmp_path_factory.mktemp("tiny")
    tiny().save_pretrained(folder)
    tokenizer().save_pretrained(folder)
    return str(folder)


def agree(bundle, each):
    return all(bundle.get(key, value) == value for key, value in each.items())


def together(settings):
    """Few mappings that hold all of many, none of which says a key twice in different ways."""
    bundles = []
    for each in filter(None, settings):
        bundle = None if EACH else next((bundle for bundle in bundles if agree(bundle, each)), None)
        if bundle is None:
            bundles.append(dict(each))
        else:
            bundle.update(each)
    return bundles


def arguments_of(file, framework, tasks=None):
    return together(possible(how.settings) for _, how in edits(framework, tasks, ONE_CARD) if how.file == file)


@pytest.mark.parametrize("settings", arguments_of("TrainingArguments", "transformers"), ids=str)
def test_the_trainer_trains_with_the_arguments(settings, tmp_path):
    arguments = transformers.TrainingArguments(**{**common(tmp_path), **settings})
    rows = samples(16)
    trained(transformers.Trainer(model=tiny(), args=arguments, train_dataset=rows, eval_dataset=rows[:4]))


LOADING = together(
    {key: value for key, value in how.settings.items() if key in ("dtype", "torch_dtype", "attn_implementation")}
    for _, how in edits("transformers")
    if how.file == "from_pretrained" and "flash_attention_2" not in how.settings.values()
)


@pytest.mark.parametrize("settings", LOADING, ids=str)
def test_a_model_that_is_loaded_as_the_edit_says_trains(settings, saved, tmp_path):
    model = transformers.AutoModelForCausalLM.from_pretrained(saved, **settings)
    dtype = settings.get("dtype", settings.get("torch_dtype"))
    if dtype is not None:
        assert str(model.dtype) == f"torch.{dtype}"
    if "attn_implementation" in settings:
        assert model.config._attn_implementation == settings["attn_implementation"]
    trained(
        transformers.Trainer(
            model=model, args=transformers.TrainingArguments(**common(tmp_path)), train_dataset=samples(16)
        )
    )


ADAPTERS = together(how.settings for _, how in edits("transformers") if how.file == "LoraConfig")


@pytest.mark.parametrize("settings", ADAPTERS, ids=str)
def test_the_trainer_trains_the_adapter(settings, tmp_path):
    peft = pytest.importorskip("peft")
    model = peft.get_peft_model(tiny(), peft.LoraConfig(**{"target_modules": "all-linear", **settings}))
    arguments = transformers.TrainingArguments(**common(tmp_path))
    trained(transformers.Trainer(model=model, args=arguments, train_dataset=samples(16)))


@pytest.mark.parametrize("kind", ["nf4-double", "int8"])
def test_an_adapter_trains_the_head_of_a_quantized_classifier(kind, tmp_path):
    """PEFT trains BERT's classifier in full. It has a bias; transformers only leaves out a last layer without one."""
    peft = pytest.importorskip("peft")
    pytest.importorskip("bitsandbytes")
    sizes = {"hidden_size": 64, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 64}
    transformers.BertForSequenceClassification(transformers.BertConfig(**sizes, vocab_size=99)).save_pretrained(
        tmp_path
    )
    run = {**FULL, **INSTALLED, "method": "lora", "task": "classification", "framework": "transformers"}
    (config,) = (how.settings for how in hows({"quantization": kind}, {}, run) if how.file == "BitsAndBytesConfig")
    model = transformers.BertForSequenceClassification.from_pretrained(
        tmp_path, quantization_config=transformers.BitsAndBytesConfig(**config), device_map={"": "cpu"}
    )
    adapted = peft.get_peft_model(model, peft.LoraConfig(task_type="SEQ_CLS", target_modules=["query"]))
    head = adapted.base_model.model.classifier.modules_to_save.default
    assert type(head) is torch.nn.Linear and head.weight.requires_grad


def lengths_of(completions, **_):
    """A reward that differs from answer to answer."""
    return [float(sum(map(ord, text)) % 7) for text in completions]


def of_trl():
    import trl

    for task, name in CONFIGS.items():
        if hasattr(trl, name) and (EACH or task != "kto"):
            for settings in arguments_of(name, "trl", (task,)):
                yield pytest.param(task, name, settings, id=f"{name} {settings}")


@pytest.mark.parametrize(("task", "name", "settings"), list(of_trl()) if HAS_TRL else [])
def test_the_trainers_of_trl_train_with_their_config(task, name, settings, saved, tmp_path):
    import trl
    from datasets import Dataset

    own = {"num_generations": 2, "max_completion_length": 4, "per_device_train_batch_size": 2} if task == "grpo" else {}
    config = getattr(trl, name)(**{**common(tmp_path), "bf16": False, **own, **settings})
    more = {"reward_funcs": lengths_of} if task == "grpo" else {}
    trainer = getattr(trl, name.replace("Config", "Trainer"))(
        model=transformers.AutoModelForCausalLM.from_pretrained(saved),
        args=config,
        train_dataset=Dataset.from_list(texts(task)),
        processing_class=transformers.AutoTokenizer.from_pretrained(saved),
        **more,
    )
    trained(trainer)


def test_a_whole_change_to_lora_trains_with_checkpointing(tmp_path):
    peft = pytest.importorskip("peft")
    change = {
        "per_device_train_batch_size": 1,
        "gradient_accumulation_steps": 4,
        "gradient_checkpointing": "full",
        "use_cache": False,
        "method": "lora",
        "lora.r": 4,
        "lora.target_modules": ("q", "v"),
        "lora.lora_dropout": 0.0,
    }
    found = {
        how.file: how for how in hows(change, {}, {**FULL, **INSTALLED, "framework": "transformers", "method": "full"})
    }
    lora = found["LoraConfig"].settings
    assert lora["target_modules"] == ["q_proj", "v_proj"]
    names = {"model": tiny(), "get_peft_model": peft.get_peft_model, "lora_config": peft.LoraConfig(**lora)}
    exec(found["after from_pretrained"].after, names)
    model = names["model"]
    assert model.base_model.model.config.use_cache is False
    arguments = transformers.TrainingArguments(**common(tmp_path), **found["TrainingArguments"].settings)
    trained(transformers.Trainer(model=model, args=arguments, train_dataset=samples(8)))
    assert model.is_gradient_checkpointing


def test_the_plain_loop_gives_the_update_of_one_large_batch():
    """Accumulating over samples of unequal length must weigh every token alike."""
    run = {**FULL, "framework": "pytorch"}
    (loop,) = [how for how in hows({"gradient_accumulation_steps": 4}, {}, run) if how.file == "training loop"]
    batch = samples(4)
    for index, sample in enumerate(batch):
        sample["labels"] = sample["labels"].clone()
        sample["labels"][: 2 * index] = -100
    whole = {key: torch.stack([sample[key] for sample in batch]) for key in batch[0]}
    single = [{key: value[None] for key, value in sample.items()} for sample in batch]

    one, many = tiny(), tiny()
    optimizer = torch.optim.SGD(one.parameters(), lr=0.1)
    one(**whole).loss.backward()
    optimizer.step()
    names = {"loader": single, "model": many, "optimizer": torch.optim.SGD(many.parameters(), lr=0.1)}
    exec(loop.after, names)
    for left, right in zip(one.parameters(), many.parameters(), strict=True):
        torch.testing.assert_close(left, right, atol=1e-5, rtol=1e-4)


def lines(change, **run):
    """The lines of a loop of one's own that make a change."""
    found = hows(change, {}, {**FULL, **INSTALLED, "framework": "pytorch", "method": "full", **run})
    return "\n".join(how.after for how in found if how.after)


def names_of_a_loop(model):
    rows = samples(4)
    batch = {key: torch.stack([row[key] for row in rows]) for key in rows[0]}
    return {
        "torch": torch,
        "model": model,
        "batch": batch,
        "loader": [batch],
        "eval_loader": [batch],
        "predictions": [],
        "total": 0.0,
        "learning_rate": 0.1,
        "optimizer": torch.optim.SGD(model.parameters(), lr=0.1),
        "step": 0,
    }


def test_plain_checkpointing_lines_turn_it_on():
    model = tiny().eval()
    exec(lines({"gradient_checkpointing": "full"}), {"model": model})
    assert model.is_gradient_checkpointing
    assert model.training


@pytest.mark.parametrize("change", [{"eval_accumulation_steps": 4}, {"prediction_loss_only": True}], ids=str)
def test_plain_evaluation_keeps_no_logits(change):
    names = names_of_a_loop(tiny())
    exec(lines(change), names)
    assert names["model"].training
    kept = names["predictions"]
    assert all(part.shape == (4, 12) and not part.requires_grad for part in kept)
    assert kept or names["total"] > 0


def test_a_plain_optimizer_step_inside_the_backward_pass_leaves_no_gradients():
    model = tiny()
    names = names_of_a_loop(model)
    before = [weight.detach().clone() for weight in model.parameters()]
    exec(lines({"optimizer_in_backward": True}), names)
    for _ in range(2):
        model(**names["batch"]).loss.backward()
    assert all(weight.grad is None for weight in model.parameters())
    assert all(not torch.equal(old, new) for old, new in zip(before, model.parameters(), strict=True))


@pytest.mark.parametrize("name", ["adafactor", "adamw_torch", "adamw_torch_fused", "sgd"])
def test_plain_optimizers_step(name):
    model = tiny()
    names = {**names_of_a_loop(model), "Adafactor": torch.optim.Adafactor}
    if name == "adafactor":
        from transformers.optimization import Adafactor

        names["Adafactor"] = Adafactor
    before = [weight.detach().clone() for weight in model.parameters()]
    exec(lines({"optim": name}), names)
    model(**names["batch"]).loss.backward()
    names["optimizer"].step()
    assert all(not torch.equal(old, new) for old, new in zip(before, model.parameters(), strict=True))


def test_plain_lines_freeze_all_but_the_last_layers():
    model = tiny()
    exec(lines({"method": "freeze"}), names_of_a_loop(model))
    assert {name for name, weight in model.named_parameters() if not weight.requires_grad} == {
        "model.embed_tokens.weight",
        "model.norm.weight",
        "lm_head.weight",
    }


def test_plain_averages_of_the_weights_stay_on_the_host():
    model = tiny()
    names = names_of_a_loop(model)
    exec(lines({"ema": "host"}, ema="card"), names)
    assert {weight.device.type for weight in names["ema"].parameters()} == {"cpu"}
