"""Families of transformers with tiny configurations and random weights, for `torch_networks.py`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch

Family = tuple[str, Callable[[], Any], tuple, dict]
SIZE = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 64}
WORDS = {"vocab_size": 99}
BOTH_SIDES = {
    "d_model": 32, "encoder_layers": 2, "decoder_layers": 2, "encoder_attention_heads": 4, "decoder_attention_heads": 4, "encoder_ffn_dim": 64,
    "decoder_ffn_dim": 64, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, "decoder_start_token_id": 1,
}  # fmt: skip
RELATIVE = {"relative_attention": True, "pos_att_type": ["c2p", "p2c"], "max_position_embeddings": 64}
GROUPED = {"num_key_value_heads": 2}
SOUND = {
    "conv_dim": (16, 16), "conv_stride": (5, 2), "conv_kernel": (10, 3), "num_conv_pos_embeddings": 8, "num_conv_pos_embedding_groups": 4,
}  # fmt: skip
PATCHES = {"image_size": 32, "patch_size": 8}
READERS: list[tuple[str, dict]] = [  # of texts in both directions: (family, options)
    ("Bert", {}), ("Roberta", {"pad_token_id": 1}), ("Albert", {"embedding_size": 16}), ("Electra", {"embedding_size": 16}),
    ("Deberta", RELATIVE), ("DebertaV2", {**RELATIVE, "position_buckets": 8, "norm_rel_ebd": "layer_norm", "share_att_key": True}),
    ("DistilBert", {"dim": 32, "n_layers": 2, "n_heads": 4, "hidden_dim": 64}), ("MPNet", {}), ("RemBert", {}),
    ("BigBird", {"attention_type": "original_full"}), ("Nystromformer", {"segment_means_seq_len": 7, "num_landmarks": 7}),
    ("SqueezeBert", {"embedding_size": 32}), ("ModernBert", {"pad_token_id": 0}),
    ("XLNet", {"d_model": 32, "n_layer": 2, "n_head": 4, "d_inner": 64}),
]  # fmt: skip
WRITERS: list[tuple[str, dict]] = [  # of texts from left to right
    ("Llama", GROUPED), ("Mistral", {**GROUPED, "sliding_window": 4}), ("Qwen3", {**GROUPED, "head_dim": 8}),
    ("Gemma", {**GROUPED, "head_dim": 8}), ("Gemma2", {**GROUPED, "head_dim": 8, "sliding_window": 4}), ("Phi", {}),
    ("Phi3", {**GROUPED, "pad_token_id": 0}), ("Falcon", {}), ("Bloom", {"n_layer": 2, "n_head": 4}),
    ("OPT", {"ffn_dim": 64, "word_embed_proj_dim": 32, "max_position_embeddings": 64}), ("GPTNeoX", {}),
    ("GPTJ", {"n_embd": 32, "n_layer": 2, "n_head": 4, "rotary_dim": 4, "n_positions": 64}),
    ("GPTNeo", {"num_layers": 2, "num_heads": 4, "attention_types": [[["global", "local"], 1]], "window_size": 4}),
    ("Mpt", {"d_model": 32, "n_heads": 4, "n_layers": 2}), ("Starcoder2", GROUPED), ("StableLm", GROUPED), ("Olmo", {}), ("Olmo2", {}),
    ("Cohere", {**GROUPED, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}),
    ("Rwkv", {"context_length": 64, "attention_hidden_size": 32}),
    ("Mixtral", {**GROUPED, "num_local_experts": 4, "num_experts_per_tok": 2}),
    ("Qwen2Moe", {**GROUPED, "num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 32, "shared_expert_intermediate_size": 32}),
    ("GptOss", {**GROUPED, "head_dim": 8, "num_local_experts": 4, "num_experts_per_tok": 2, "pad_token_id": 0}),
    ("DeepseekV3", {
        "num_key_value_heads": 4, "n_routed_experts": 4, "n_group": 2, "topk_group": 1, "num_experts_per_tok": 2, "moe_intermediate_size": 32,
        "kv_lora_rank": 8, "q_lora_rank": 8, "qk_rope_head_dim": 4, "qk_nope_head_dim": 4, "v_head_dim": 8, "first_k_dense_replace": 1,
    }),
    ("Mamba", {"state_size": 4}), ("FalconMamba", {"state_size": 4}),
    ("Mamba2", {"state_size": 8, "num_heads": 8, "head_dim": 8, "n_groups": 2, "chunk_size": 4}),
]  # fmt: skip
PICTURES: list[tuple[str, str, dict]] = [  # (family, what follows in the class's name, options)
    ("ViT", "Model", {**PATCHES, **SIZE}), ("DeiT", "ForImageClassification", {**PATCHES, **SIZE}),
    ("Beit", "ForImageClassification", {**PATCHES, **SIZE, "use_relative_position_bias": True}), ("Dinov2", "Model", {**PATCHES, **SIZE}),
    ("Swin", "Model", {"image_size": 32, "patch_size": 2, "embed_dim": 8, "depths": [2, 2], "num_heads": [2, 4], "window_size": 4}),
    ("Swinv2", "Model", {"image_size": 32, "patch_size": 2, "embed_dim": 8, "depths": [2, 2], "num_heads": [2, 4], "window_size": 4}),
    ("Segformer", "ForSemanticSegmentation", {
        "depths": [1] * 4, "hidden_sizes": [8, 8, 16, 16], "num_attention_heads": [1, 2, 2, 2], "decoder_hidden_size": 16,
    }),
    ("ConvNextV2", "ForImageClassification", {"hidden_sizes": [8, 8, 16, 16], "depths": [1] * 4}),
    ("PoolFormer", "ForImageClassification", {"hidden_sizes": [8, 8, 16, 16], "depths": [1] * 4}),
    ("Yolos", "ForObjectDetection", {**SIZE, "image_size": [32, 32], "patch_size": 8, "num_detection_tokens": 5}),
]  # fmt: skip
SOUNDS: list[tuple[str, str, dict]] = [
    ("Wav2Vec2", "ForCTC", WORDS), ("Hubert", "Model", {}), ("WavLM", "Model", {}),
    ("Wav2Vec2Conformer", "Model", {"conv_depthwise_kernel_size": 3}),
]  # fmt: skip


def transformers_networks() -> Iterator[Family]:
    """(Name, what makes it, arguments, arguments by name)."""
    import transformers as t

    def of(family: str, end: str, inputs: dict, **options: Any) -> Family:
        return f"transformers/{family}", lambda: getattr(t, family + end)(getattr(t, f"{family}Config")(**options)), (), inputs

    ids, mask = torch.randint(3, 99, (2, 7)), torch.ones(2, 7, dtype=torch.int64)
    mask[1, 5:] = 0
    text = {"input_ids": ids, "attention_mask": mask}
    image, sound, both = torch.randn(2, 3, 32, 32), torch.randn(2, 400), {**text, "decoder_input_ids": ids}
    for family, options in READERS:
        yield of(family, "Model", text, **WORDS, **SIZE, **options)
    gpt2 = {"n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 64, "use_cache": False}
    yield of("GPT2", "LMHeadModel", text, **WORDS, **gpt2)
    for family, options in WRITERS:
        inputs = {"input_ids": ids} if "Mamba" in family else text
        yield of(family, "ForCausalLM", inputs, **{**WORDS, **SIZE, "use_cache": False, **options})
    t5 = {"d_model": 32, "d_kv": 8, "d_ff": 64, "num_layers": 2, "num_heads": 4, "decoder_start_token_id": 0, "pad_token_id": 0}
    yield of("T5", "ForConditionalGeneration", both, **WORDS, **t5, use_cache=False)
    for family, end in (("Bart", "ForConditionalGeneration"), ("Marian", "MTModel"), ("Pegasus", "ForConditionalGeneration")):
        yield of(family, end, both, **WORDS, **BOTH_SIDES, use_cache=False, max_position_embeddings=64)
    heard = {"input_features": torch.randn(2, 16, 40), "decoder_input_ids": ids}
    listener = {"num_mel_bins": 16, "max_source_positions": 20, "max_target_positions": 16, "use_cache": False}
    yield of("Whisper", "ForConditionalGeneration", heard, **WORDS, **BOTH_SIDES, **listener)
    for family, end, options in PICTURES:
        yield of(family, end, {"pixel_values": image}, **options)
    for family, end, options in SOUNDS:
        yield of(family, end, {"input_values": sound}, **SIZE, **SOUND, **options)
    words = {"text_config": {**WORDS, **SIZE, "max_position_embeddings": 16, "eos_token_id": 98}, "vision_config": {**PATCHES, **SIZE}}
    yield of("CLIP", "Model", {**text, "pixel_values": image}, **words, projection_dim=16)
    yield of("Siglip", "Model", {"input_ids": ids, "pixel_values": image}, **words)
    stages = t.ResNetConfig(embedding_size=8, hidden_sizes=[8, 8, 16, 16], depths=[1] * 4, out_features=["stage4"])
    boxes = {"use_timm_backbone": False, "use_pretrained_backbone": False, "backbone_config": stages, "backbone": None, "num_queries": 5}
    yield of("Detr", "ForObjectDetection", {"pixel_values": torch.randn(1, 3, 64, 64)}, **{**BOTH_SIDES, **boxes})
