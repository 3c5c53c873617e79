"""Fine-tuning: adapt a trained model to new text, with few trainable parameters.

Modules are loaded when they are named, e.g. `from efflib.finetuning.lora import add_lora`.

    lora        a low-rank update beside each frozen linear; merging; what training keeps in memory
    qlora       LoRA beside linears that are stored in NF4
    training    the loop: AdamW on the parameters that are not frozen
    peft_state  adapters in the files of peft, written and read
    batched     several adapters in one batch
    memory      what fine-tuning holds, by arithmetic: 7B to 65B

Notation: W [N, K] is the frozen weight of nn.Linear, A [r, K] and B [N, r] its update, r the rank.
"""
