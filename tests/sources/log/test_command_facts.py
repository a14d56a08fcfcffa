"""That a run was set up on its command line, and which flag says what, so that an edit can be that flag."""

from oomdoctor.sources.log.evidence import facts_of
from oomdoctor.sources.log.lines import Line


def facts(text):
    return {fact.key: fact.value for fact in facts_of([Line(n, line) for n, line in enumerate(text.splitlines(), 1)])}


def test_flags_of_a_script_are_remembered_by_the_key_they_set():
    known = facts("$ torchrun --nproc_per_node 4 train.py --model_max_length 2048 --per_device_train_batch_size 2")
    assert known["log.command"] == "train.py"
    assert known["log.option.max_length"] == "model_max_length"
    assert known["log.option.per_device_train_batch_size"] == "per_device_train_batch_size"


def test_a_launchers_list_of_words_names_the_script_with_its_path():
    known = facts(
        "['/usr/bin/python3', '-u', 'src/train_bash.py', '--local_rank=7', '--per_device_train_batch_size', '1', "
        "'--gradient_accumulation_steps', '4'] exits with return code = 1"
    )
    assert known["log.command"] == "src/train_bash.py"


def test_flags_of_a_launcher_alone_are_no_settings_of_the_script():
    assert "log.command" not in facts('Command "torchrun --nnodes 1 --nproc_per_node 8 run.py --config train.yaml"')


def test_printed_arguments_are_no_command():
    assert "log.command" not in facts("per_device_train_batch_size: 8\ngradient_accumulation_steps: 1\n")
