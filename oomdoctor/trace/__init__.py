"""The exact mode: runs the real model code on torch's meta device, where tensors have sizes and no memory.

Two sides. The parent (`spec`, `launch`, `result`) needs no torch: it says what to run and starts a child process. The
child (`run` and what it imports) needs torch, transformers and peft; it builds the model (`models`), gives the meta
device the ways of CUDA (`kernels`, `autocast`, `quantized`), runs training steps (`steps`, or a person's own: `script`)
while `meter` writes down each storage on a `tape`, draws the tape out to all blocks (`depth`) and reads it (`peaks`).
"""
