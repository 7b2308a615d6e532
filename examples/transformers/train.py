"""A Hugging Face Trainer script: `torchrun --nproc-per-node 2 train.py`."""

import tempfile

import numpy as np
import torch
from sklearn.datasets import load_digits
from transformers import PretrainedConfig, Trainer, TrainingArguments, ViTConfig, ViTForImageClassification


def samples(first: int, last: int) -> list[dict[str, object]]:
    digits = load_digits()
    images = (digits.images[first:last, None] / 16).astype(np.float32)
    return [
        {"pixel_values": torch.from_numpy(image), "labels": int(label)}
        for image, label in zip(images, digits.target[first:last], strict=True)
    ]


def model() -> ViTForImageClassification:
    torch.manual_seed(0)
    config: PretrainedConfig = ViTConfig(
        image_size=8, patch_size=2, num_channels=1, hidden_size=32, num_hidden_layers=2,
        num_attention_heads=4, intermediate_size=64, num_labels=10,
    )  # fmt: skip
    return ViTForImageClassification(config)


def accuracy(prediction: object) -> dict[str, float]:
    return {"accuracy": float((prediction.predictions.argmax(1) == prediction.label_ids).mean())}  # type: ignore[attr-defined]


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        arguments = TrainingArguments(
            output_dir=folder, num_train_epochs=4, per_device_train_batch_size=16, learning_rate=3e-3, use_cpu=True,
            report_to="none", save_strategy="no", logging_strategy="no", disable_tqdm=True, seed=0,
        )  # fmt: skip
        trainer = Trainer(
            model=model(),
            args=arguments,
            train_dataset=samples(0, 1536),
            eval_dataset=samples(1536, 1797),
            compute_metrics=accuracy,
        )
        trainer.train()
        print(f"accuracy {trainer.evaluate()['eval_accuracy']:.3f}")


if __name__ == "__main__":
    main()
