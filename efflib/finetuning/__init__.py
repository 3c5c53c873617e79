"""Fine-tuning: adapt a trained model to new text, with few trainable parameters.

Modules are loaded when they are named, e.g. `from efflib.finetuning.lora import add_lora`.

    lora        a low-rank update beside each frozen linear; merging; what training keeps in memory
    qlora       LoRA beside linears that are stored in NF4
    training    the loop: AdamW on the parameters that are not frozen
    peft_state  adapters in the files of peft, written and read
    batched     several adapters in one batch
    memory      what fine-tuning holds, by arithmetic: 7B to 65B

    distillation  a student learns from a teacher: divergences, MiniLLM, a model's own text
    gaussians   one normal distribution fitted to two modes

    adapters    bottlenecks behind frozen layers (Houlsby); another one for each row of a batch
    prompts     trained vectors before the text; rows of unlike prompts in one batch
    prefixes    trained keys and values in every layer's cache
    biases      BitFit, and as many weights drawn at random
    ia3         factors on keys, values and hidden channels
    bills       what each of these costs, and a choice among them
    peft_prompts  prompts, prefixes and factors in the files of peft
    tasks       three small tasks on real text

Notation: W [N, K] is the frozen weight of nn.Linear, A [r, K] and B [N, r] its update, r the rank.
"""
