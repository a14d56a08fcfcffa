"""Does the advice cure? Training runs that die on a small card, treated by oomdoctor until they run.

A patient (`patient`) is a training script as data; the ward (`ward`) makes them from a seed. Its run (`training`, in a
forked process: `beds`) is real: transformers, PEFT, TRL and torch on CPU tensors, on a card (`card`) that counts live
bytes and raises torch's own out-of-memory error. What the run prints is all that the doctor (`doctor`) gets; what it
prescribes is done as its settings say (`treatment`), again and again (`loop`). `truth` knows by search what would have
been enough, `baselines` what others would have done, `scores` adds it up.
"""
