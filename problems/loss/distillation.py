"""Knowledge distillation: two tempered softmaxes over the same rows and the divergence between them, none of it stored."""

import torch
import torch.nn as nn
import torch.nn.functional as F

SIZES = {"cpu": {"rows": 1024, "classes": 1000}, "full": {"rows": 131072, "classes": 1000}}


class Model(nn.Module):
    def __init__(self, temperature: float):
        super().__init__()
        self.temperature = temperature

    def forward(self, student: torch.Tensor, teacher: torch.Tensor) -> torch.Tensor:
        log_student = F.log_softmax(student / self.temperature, dim=-1)
        soft_teacher = F.softmax(teacher / self.temperature, dim=-1)
        return F.kl_div(log_student, soft_teacher, reduction="batchmean") * self.temperature**2


def get_inputs(size="full"):
    shape = (SIZES[size]["rows"], SIZES[size]["classes"])
    return [torch.randn(shape), torch.randn(shape) * 2.0]


def get_init_inputs():
    return [4.0]
