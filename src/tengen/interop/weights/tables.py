"""How the checkpoints of others name the tensors of the zoo: a table for each family and layout. See `rules.py` for the language."""

from __future__ import annotations

from tengen.interop.weights.rules import Table

NUMBERS = r"(.*\.)?num_batches_tracked"

# class -> (index of the first stage's first module in the flat list, modules of each stage beside its blocks)
FLAT = {"ConvNeXt": (0, 2), "DenseNet": (0, 1), "EfficientNet": (1, 0), "MobileNetV2": (1, 0), "MobileNetV3": (1, 0), "ShuffleNetV2": (0, 0)}

# Any network: the layer's own names, and how the framework stores what is in them.
TORCH_RULES = """
*.cells.{i}.0.weight_ih -> *.weight_ih_l{i}
*.cells.{i}.0.weight_hh -> *.weight_hh_l{i}
*.cells.{i}.0.bias_ih -> *.bias_ih_l{i}
*.cells.{i}.0.bias_hh -> *.bias_hh_l{i}
*.cells.{i}.1.weight_ih -> *.weight_ih_l{i}_reverse
*.cells.{i}.1.weight_hh -> *.weight_hh_l{i}_reverse
*.cells.{i}.1.bias_ih -> *.bias_ih_l{i}_reverse
*.cells.{i}.1.bias_hh -> *.bias_hh_l{i}_reverse
"""
PADDLE = {"running_mean": "_mean", "running_var": "_variance"}
GENERIC = {
    "torch": Table(TORCH_RULES, ignored=NUMBERS),
    "megengine": Table(own_shapes=True),
    "paddle": Table(spelling=PADDLE, linear="T"),
}

CONV_NORM = """
conv1.conv -> conv1.0
conv1.bn -> conv1.1
conv5.conv -> conv5.0
conv5.bn -> conv5.1
"""
MOBILE_V2 = """
features.{i}.conv -> features.{i}.0
features.{i}.bn -> features.{i}.1
features.{i}.layers.{j:last}.conv -> features.{i}.conv.{j}
features.{i}.layers.{j:last}.bn -> features.{i}.conv.{j+1}
features.{i}.layers.{j}.conv -> features.{i}.conv.{j}.0
features.{i}.layers.{j}.bn -> features.{i}.conv.{j}.1
classifier -> classifier.1
"""
MOBILE_BLOCKS_TIMM = """
features.0.conv -> conv_stem
features.0.bn -> bn1
features.{s/j}.layers.{k:0 of 2}.conv -> blocks.{s}.{j}.conv_dw
features.{s/j}.layers.{k:0 of 2}.bn -> blocks.{s}.{j}.bn1
features.{s/j}.layers.{k:last of 2}.conv -> blocks.{s}.{j}.conv_pw
features.{s/j}.layers.{k:last of 2}.bn -> blocks.{s}.{j}.bn2
features.{s/j}.layers.{k:0 of 3}.conv -> blocks.{s}.{j}.conv_pw
features.{s/j}.layers.{k:0 of 3}.bn -> blocks.{s}.{j}.bn1
features.{s/j}.layers.{k:1 of 3}.conv -> blocks.{s}.{j}.conv_dw
features.{s/j}.layers.{k:1 of 3}.bn -> blocks.{s}.{j}.bn2
features.{s/j}.layers.{k:last of 3}.conv -> blocks.{s}.{j}.conv_pwl
features.{s/j}.layers.{k:last of 3}.bn -> blocks.{s}.{j}.bn3
features.{s/j}.layers.{k}.fc1 -> blocks.{s}.{j}.se.conv_reduce
features.{s/j}.layers.{k}.fc2 -> blocks.{s}.{j}.se.conv_expand
"""
HEAD_TIMM = """
features.{i:last}.conv -> conv_head
features.{i:last}.bn -> bn2
"""
DENSE = """
conv0 -> features.conv0
norm0 -> features.norm0
norm5 -> features.norm5
features.{s/j}.norm -> features.transition{s+1}.norm
features.{s/j}.conv -> features.transition{s+1}.conv
features.{s/j} -> features.denseblock{s+1}.denselayer{j+1}
"""
VIT_HF = """
cls_token -> vit.embeddings.cls_token
pos_embed -> vit.embeddings.position_embeddings
patch_embed -> vit.embeddings.patch_embeddings.projection
blocks.{i}.norm1 -> vit.encoder.layer.{i}.layernorm_before ; vit.layers.{i}.layernorm_before
blocks.{i}.norm2 -> vit.encoder.layer.{i}.layernorm_after ; vit.layers.{i}.layernorm_after
blocks.{i}.attn.qkv -> vit.encoder.layer.{i}.attention.attention.(query|key|value) ; vit.layers.{i}.attention.(q_proj|k_proj|v_proj)
blocks.{i}.attn.proj -> vit.encoder.layer.{i}.attention.output.dense ; vit.layers.{i}.attention.o_proj
blocks.{i}.fc1 -> vit.encoder.layer.{i}.intermediate.dense ; vit.layers.{i}.mlp.fc1
blocks.{i}.fc2 -> vit.encoder.layer.{i}.output.dense ; vit.layers.{i}.mlp.fc2
norm -> vit.layernorm
head -> classifier
"""
BERT_HF = """
tokens -> bert.embeddings.word_embeddings
positions -> bert.embeddings.position_embeddings
segments -> bert.embeddings.token_type_embeddings
norm -> bert.embeddings.LayerNorm
layers.{i}.attn.qkv -> bert.encoder.layer.{i}.attention.self.(query|key|value)
layers.{i}.attn.proj -> bert.encoder.layer.{i}.attention.output.dense
layers.{i}.norm1 -> bert.encoder.layer.{i}.attention.output.LayerNorm
layers.{i}.fc1 -> bert.encoder.layer.{i}.intermediate.dense
layers.{i}.fc2 -> bert.encoder.layer.{i}.output.dense
layers.{i}.norm2 -> bert.encoder.layer.{i}.output.LayerNorm
pooler -> bert.pooler.dense
"""
BERT_BELOW = "\n".join(f"bert.{line}" for line in BERT_HF.split("\n") if line)  # of a network that has a BERT and a head
MASKED_LM = """
dense -> cls.predictions.transform.dense
norm -> cls.predictions.transform.LayerNorm
bias -> cls.predictions.bias ; cls.predictions.decoder.bias
"""
DECODER = """
tokens -> model.embed_tokens
blocks.{i}.attn.qkv -> model.layers.{i}.self_attn.(q_proj|k_proj|v_proj) ; model.layers.{i}.self_attn.qkv_proj
blocks.{i}.attn.q_norm -> model.layers.{i}.self_attn.q_norm
blocks.{i}.attn.k_norm -> model.layers.{i}.self_attn.k_norm
blocks.{i}.attn.proj -> model.layers.{i}.self_attn.o_proj
norm -> model.norm
head -> lm_head
"""
GATED = """
blocks.{i}.gate_up -> model.layers.{i}.mlp.(gate_proj|up_proj) ; model.layers.{i}.mlp.gate_up_proj
blocks.{i}.down -> model.layers.{i}.mlp.down_proj
"""
PRE_NORMS = """
blocks.{i}.norm1 -> model.layers.{i}.input_layernorm
blocks.{i}.norm2 -> model.layers.{i}.post_attention_layernorm
"""
NOT_NEEDED = r"(bert\.pooler|cls\.seq_relationship|classifier|qa_outputs)\..*"  # heads of files that have several
POSITIONS = r".*position_ids"
OLD_NORMS = ((r"LayerNorm\.gamma$", "LayerNorm.weight"), (r"LayerNorm\.beta$", "LayerNorm.bias"))


def _decoder(rules: str) -> Table:
    """The table of a decoder with turning positions, whose head may be the embedding."""
    return Table(rules, "model.", r".*rotary_emb\.inv_freq", tied=("lm_head.weight", "model.embed_tokens.weight"))


TABLES: dict[str, dict[str, Table]] = {
    "ResNet": {
        "torchvision": Table(ignored=NUMBERS),
        "timm": Table(ignored=NUMBERS),
        "transformers": Table(
            """
            conv1 -> resnet.embedder.embedder.convolution
            bn1 -> resnet.embedder.embedder.normalization
            layer{s}.{j}.conv{k} -> resnet.encoder.stages.{s-1}.layers.{j}.layer.{k-1}.convolution
            layer{s}.{j}.bn{k} -> resnet.encoder.stages.{s-1}.layers.{j}.layer.{k-1}.normalization
            layer{s}.{j}.downsample.0 -> resnet.encoder.stages.{s-1}.layers.{j}.shortcut.convolution
            layer{s}.{j}.downsample.1 -> resnet.encoder.stages.{s-1}.layers.{j}.shortcut.normalization
            fc -> classifier.1
            """,
            ignored=NUMBERS,
        ),
    },
    "VGG": {
        "torchvision": Table(),
        "timm": Table(
            """
            classifier.0 -> pre_logits.fc1 : 7x7
            classifier.3 -> pre_logits.fc2 : 1x1
            classifier.6 -> head.fc
            """
        ),
    },
    "MobileNetV2": {
        "torchvision": Table(MOBILE_V2, ignored=NUMBERS),
        "timm": Table(HEAD_TIMM + MOBILE_BLOCKS_TIMM, ignored=NUMBERS),
        "megengine": Table("features.{i}.layers -> features.{i}.conv\nclassifier -> classifier.1", own_shapes=True),
        "paddle": Table(MOBILE_V2, spelling=PADDLE, linear="T"),
    },
    "MobileNetV3": {
        "torchvision": Table(
            """
            features.{i}.conv -> features.{i}.0
            features.{i}.bn -> features.{i}.1
            features.{i}.layers.{j}.conv -> features.{i}.block.{j}.0
            features.{i}.layers.{j}.bn -> features.{i}.block.{j}.1
            features.{i}.layers.{j} -> features.{i}.block.{j}
            fc1 -> classifier.0
            fc2 -> classifier.3
            """,
            ignored=NUMBERS,
        ),
        "timm": Table(
            MOBILE_BLOCKS_TIMM
            + """
            features.{s/j}.conv -> blocks.{s}.{j}.conv
            features.{s/j}.bn -> blocks.{s}.{j}.bn1
            fc1 -> conv_head : 1x1
            fc2 -> classifier
            """,
            ignored=NUMBERS,
            options={"eps": 1e-5},
        ),
    },
    "EfficientNet": {
        "torchvision": Table(
            """
            features.0.conv -> features.0.0
            features.0.bn -> features.0.1
            features.{s/j}.conv -> features.{s+1}.0
            features.{s/j}.bn -> features.{s+1}.1
            features.{s/j}.layers.{k}.conv -> features.{s+1}.{j}.block.{k}.0
            features.{s/j}.layers.{k}.bn -> features.{s+1}.{j}.block.{k}.1
            features.{s/j}.layers.{k} -> features.{s+1}.{j}.block.{k}
            classifier -> classifier.1
            """,
            ignored=NUMBERS,
        ),
        "timm": Table(HEAD_TIMM + MOBILE_BLOCKS_TIMM, ignored=NUMBERS),
    },
    "ShuffleNetV2": {
        "torchvision": Table(
            CONV_NORM
            + """
            stages.{s/j}.branch1.0.conv -> stage{s+2}.{j}.branch1.0
            stages.{s/j}.branch1.0.bn -> stage{s+2}.{j}.branch1.1
            stages.{s/j}.branch1.1.conv -> stage{s+2}.{j}.branch1.2
            stages.{s/j}.branch1.1.bn -> stage{s+2}.{j}.branch1.3
            stages.{s/j}.branch2.0.conv -> stage{s+2}.{j}.branch2.0
            stages.{s/j}.branch2.0.bn -> stage{s+2}.{j}.branch2.1
            stages.{s/j}.branch2.1.conv -> stage{s+2}.{j}.branch2.3
            stages.{s/j}.branch2.1.bn -> stage{s+2}.{j}.branch2.4
            stages.{s/j}.branch2.2.conv -> stage{s+2}.{j}.branch2.5
            stages.{s/j}.branch2.2.bn -> stage{s+2}.{j}.branch2.6
            """,
            ignored=NUMBERS,
        ),
    },
    "DenseNet": {"torchvision": Table(DENSE, ignored=NUMBERS), "timm": Table(DENSE, ignored=NUMBERS)},
    "ConvNeXt": {
        "torchvision": Table(
            """
            features.0 -> features.0.0
            features.1.norm -> features.0.1
            features.{s/j:0}.norm -> features.{2*s}.0
            features.{s/j:1} -> features.{2*s}.1
            features.{s/j}.depthwise -> features.{2*s+1}.{j-2}.block.0
            features.{s/j}.norm -> features.{2*s+1}.{j-2}.block.2
            features.{s/j}.fc1 -> features.{2*s+1}.{j-2}.block.3
            features.{s/j}.fc2 -> features.{2*s+1}.{j-2}.block.5
            features.{s/j}.scale -> features.{2*s+1}.{j-2}.layer_scale : column
            norm -> classifier.0
            head -> classifier.2
            """
        ),
        "timm": Table(
            """
            features.0 -> stem.0
            features.1.norm -> stem.1
            features.{s/j:0}.norm -> stages.{s}.downsample.0
            features.{s/j:1} -> stages.{s}.downsample.1
            features.{s/j}.depthwise -> stages.{s}.blocks.{j-2}.conv_dw
            features.{s/j}.norm -> stages.{s}.blocks.{j-2}.norm
            features.{s/j}.fc1 -> stages.{s}.blocks.{j-2}.mlp.fc1
            features.{s/j}.fc2 -> stages.{s}.blocks.{j-2}.mlp.fc2
            features.{s/j}.scale -> stages.{s}.blocks.{j-2}.gamma
            norm -> head.norm
            head -> head.fc
            """
        ),
        "transformers": Table(
            """
            features.0 -> convnext.embeddings.patch_embeddings
            features.1.norm -> convnext.embeddings.layernorm
            features.{s/j:0}.norm -> convnext.encoder.stages.{s}.downsampling_layer.0
            features.{s/j:1} -> convnext.encoder.stages.{s}.downsampling_layer.1
            features.{s/j}.depthwise -> convnext.encoder.stages.{s}.layers.{j-2}.dwconv
            features.{s/j}.norm -> convnext.encoder.stages.{s}.layers.{j-2}.layernorm
            features.{s/j}.fc1 -> convnext.encoder.stages.{s}.layers.{j-2}.pwconv1
            features.{s/j}.fc2 -> convnext.encoder.stages.{s}.layers.{j-2}.pwconv2
            features.{s/j}.scale -> convnext.encoder.stages.{s}.layers.{j-2}.layer_scale_parameter
            norm -> convnext.layernorm
            head -> classifier
            """
        ),
    },
    "ViT": {
        "torchvision": Table(
            """
            cls_token -> class_token
            patch_embed -> conv_proj
            pos_embed -> encoder.pos_embedding
            blocks.{i}.norm1 -> encoder.layers.encoder_layer_{i}.ln_1
            blocks.{i}.norm2 -> encoder.layers.encoder_layer_{i}.ln_2
            blocks.{i}.attn.qkv.weight -> encoder.layers.encoder_layer_{i}.self_attention.in_proj_weight
            blocks.{i}.attn.qkv.bias -> encoder.layers.encoder_layer_{i}.self_attention.in_proj_bias
            blocks.{i}.attn.proj -> encoder.layers.encoder_layer_{i}.self_attention.out_proj
            blocks.{i}.fc1 -> encoder.layers.encoder_layer_{i}.mlp.0
            blocks.{i}.fc2 -> encoder.layers.encoder_layer_{i}.mlp.3
            norm -> encoder.ln
            head -> heads.head
            """,
            renamed=((r"\.mlp\.linear_1\.", ".mlp.0."), (r"\.mlp\.linear_2\.", ".mlp.3.")),
        ),
        "timm": Table(
            """
            patch_embed -> patch_embed.proj
            blocks.{i}.fc1 -> blocks.{i}.mlp.fc1
            blocks.{i}.fc2 -> blocks.{i}.mlp.fc2
            """
        ),
        "transformers": Table(VIT_HF, prefix="vit.", heads=r"pooler\..*"),
    },
    "BERT": {
        "transformers": Table(BERT_HF, "bert.", POSITIONS, r"(cls|classifier|qa_outputs)\..*", OLD_NORMS, {"activation": "gelu"}),
        "megengine": Table(BERT_HF.replace("bert.", ""), heads=r"(cls|classifier)\..*", own_shapes=True, options={"activation": "gelu_tanh"}),
    },
    "BERTMaskedLM": {
        "transformers": Table(
            BERT_BELOW + MASKED_LM, "bert.", POSITIONS + r"|cls\.predictions\.decoder\.bias", NOT_NEEDED, OLD_NORMS,
            tied=("cls.predictions.decoder.weight", "bert.embeddings.word_embeddings.weight"),
        ),
    },
    "BERTClassifier": {"transformers": Table(BERT_BELOW, "bert.", POSITIONS, r"(cls|qa_outputs)\..*", OLD_NORMS)},
    "BERTTagger": {"transformers": Table(BERT_BELOW, "bert.", POSITIONS, r"(bert\.pooler|cls|qa_outputs)\..*", OLD_NORMS)},
    "BERTAnswers": {
        "transformers": Table(
            BERT_BELOW + "\nends -> qa_outputs", "bert.", POSITIONS, r"(bert\.pooler|cls|classifier)\..*", OLD_NORMS
        ),
    },
    "GPT": {
        "transformers": Table(
            """
            tokens -> transformer.wte
            positions -> transformer.wpe
            blocks.{i}.norm1 -> transformer.h.{i}.ln_1
            blocks.{i}.norm2 -> transformer.h.{i}.ln_2
            blocks.{i}.attn.qkv -> transformer.h.{i}.attn.c_attn : T
            blocks.{i}.attn.proj -> transformer.h.{i}.attn.c_proj : T
            blocks.{i}.fc1 -> transformer.h.{i}.mlp.c_fc : T
            blocks.{i}.fc2 -> transformer.h.{i}.mlp.c_proj : T
            norm -> transformer.ln_f
            head -> lm_head
            """,
            "transformer.",
            r"(.*\.)?h\.\d+\.attn\.(masked_)?bias",
            options={"activation": "gelu_tanh"},
            tied=("lm_head.weight", "transformer.wte.weight"),
        ),
    },
    "Llama": {"transformers": _decoder(DECODER + GATED + PRE_NORMS)},
    "Gemma2": {
        "transformers": _decoder(
            DECODER
            + GATED
            + """
            blocks.{i}.norm1 -> model.layers.{i}.input_layernorm
            blocks.{i}.behind1 -> model.layers.{i}.post_attention_layernorm
            blocks.{i}.norm2 -> model.layers.{i}.pre_feedforward_layernorm
            blocks.{i}.behind2 -> model.layers.{i}.post_feedforward_layernorm
            """
        ),
    },
    "Olmo2": {
        "transformers": _decoder(
            DECODER
            + GATED
            + """
            blocks.{i}.norm1 -> model.layers.{i}.post_attention_layernorm
            blocks.{i}.norm2 -> model.layers.{i}.post_feedforward_layernorm
            """
        ),
    },
    "Phi": {
        "transformers": _decoder(
            """
            blocks.{i}.attn.q_norm -> model.layers.{i}.self_attn.q_layernorm
            blocks.{i}.attn.k_norm -> model.layers.{i}.self_attn.k_layernorm
            blocks.{i}.attn.proj -> model.layers.{i}.self_attn.dense
            blocks.{i}.norm1 -> model.layers.{i}.input_layernorm
            blocks.{i}.fc1 -> model.layers.{i}.mlp.fc1
            blocks.{i}.fc2 -> model.layers.{i}.mlp.fc2
            norm -> model.final_layernorm
            """
            + DECODER
        ),
    },
}  # fmt: skip
