"""One file per family of models. To add one: write the file and add its lines to MODELS."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from types import MappingProxyType

from ctta.models.cifar_resnet import CifarResNet
from ctta.models.dgcnn import DGCNN
from ctta.models.entry import ModelEntry, PublicWeights
from ctta.models.load import embedded_cloud_model, embedded_model, find, from_factory, identify, load, weights_hash
from ctta.models.pointnet import PointNet, VanillaPointNet
from ctta.models.resnet import BasicBlock, Bottleneck, ResNet
from ctta.models.resnext import ResNeXt29
from ctta.models.small_pointnet import SmallPointNet
from ctta.models.small_resnet import SmallResNet
from ctta.models.ttt_resnet import ResNet26
from ctta.models.vit_mae import ViTMAE
from ctta.models.wide_resnet import WideResNet

__all__ = [
    "EMBEDDED_NETWORKS",
    "MODELS",
    "ModelEntry",
    "PublicWeights",
    "embedded_cloud_model",
    "embedded_model",
    "find",
    "from_factory",
    "identify",
    "load",
    "weights_hash",
]

EMBEDDED_NETWORKS = {"embedded": "small_resnet", "embedded_clouds": "small_pointnet"}

# Mean and standard deviation that the weights were trained with.
RAW = ((0.0, 0.0, 0.0), (1.0, 1.0, 1.0))
HALF = ((0.5, 0.5, 0.5), (0.5, 0.5, 0.5))
IMAGENET = ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
CIFAR10 = ((0.4914, 0.4822, 0.4465), (0.2023, 0.1994, 0.2010))
CIFAR100 = ((0.5070, 0.4865, 0.4409), (0.2673, 0.2564, 0.2761))

# The data that the weights were trained on, by whom, and where to get them.
STANDARD = (
    "CIFAR-10, RobustBench 'Standard'",
    "RobustBench's 'Standard' is at https://drive.google.com/file/d/1t98aEuzeTL8P7Kpd5DIrCoCL21BNZUhC; it is saved as "
    "natural.pt.tar, and any file name works.",
)
AUGMIX10 = (
    "CIFAR-10, AugMix",
    "RobustBench's 'Hendrycks2020AugMix_WRN' is at https://drive.google.com/file/d/1wy7gSRsUZzCzj8QhmTbcnwmES_2kkNph.",
)
AUGMIX100 = (
    "CIFAR-100, AugMix",
    "RobustBench's 'Hendrycks2020AugMix_ResNeXt' is at "
    "https://drive.google.com/file/d/1ocnHbvDdOBLvgNr6K7vEYL08hUdkD1Rv.",
)
TORCHVISION = (
    "ImageNet, torchvision",
    "They are at https://download.pytorch.org/models/: resnet18-f37072fd.pth, resnet50-0676ba61.pth (IMAGENET1K_V1).",
)
TTT = (
    "CIFAR-10, test-time training",
    "https://github.com/yueatsprograms/ttt_cifar_release trains them; its ckpt.pth can be used as it is.",
)
EMBEDDED = (
    "Fashion-MNIST, normalisation inside",
    "ctta.models.embedded_model() is this network with the weights that come with the package.",
)
MAE = (
    "a masked autoencoder, for ttt_mae",
    "None are public; `ctta train experiments/train_embedded_mae.yaml -o mae.safetensors` makes them.",
)
YANX27 = (
    "ModelNet40, yanx27 and ModelNet40-C",
    "github.com/yanx27/Pointnet_Pointnet2_pytorch and github.com/jiachens/ModelNet40-C have them; those that were "
    "trained with normals do not fit.",
)
FXIA22 = ("input transform only, fxia22", "github.com/fxia22/pointnet.pytorch trains them.")
WANG = ("ModelNet40, WangYueFt", "They are in pytorch/pretrained of github.com/WangYueFt/dgcnn.")
WANG_POINTNET = ("no transforms, WangYueFt", "github.com/WangYueFt/dgcnn trains them: main.py --model=pointnet.")
EMBEDDED_CLOUDS = (
    "generated solids",
    "ctta.models.embedded_cloud_model() is this network with the weights that come with the package.",
)

WRN28_10 = PublicWeights(
    "RobustBench Standard",
    "6ed1c75dad63e8ebdbef365020dd1a7eee5e79cf8a1438bd3bdc3b9c7aab3d44",
    5.22,
    {"CIFAR-10-C": 43.5},
)
RESNEXT29 = PublicWeights("AugMix's ResNeXt-29", "", None, {"CIFAR-100-C": 46.4})
RESNET18 = PublicWeights("resnet18 IMAGENET1K_V1", "f37072fd", 30.24)
RESNET50 = (
    PublicWeights(
        "resnet50 IMAGENET1K_V1", "0676ba61", 23.87, {"ImageNet-C (none)": 82.0, "ImageNet-C (resize256)": 82.4}
    ),
    PublicWeights("resnet50 IMAGENET1K_V2", "11ad3fa6", 19.14),
)
FASHION = PublicWeights("the embedded model", "60d5aac7a9295d604c350b92780bcb4a704b6c2aa7adfbe255523100d56a4a0c", 6.25)


def akamaster(depth: int, sha256: str, error: float) -> ModelEntry:
    """CIFAR-10, shortcuts without weights."""
    page = "https://github.com/akamaster/pytorch_resnet_cifar10"
    known = (PublicWeights(f"akamaster's resnet{depth}", sha256, error),)
    source = f"They are in pretrained_models/ of {page}."
    return ModelEntry(partial(CifarResNet, depth), 10, *IMAGENET, 32, "CIFAR-10, akamaster", source, known)


def chenyaofo(depth: int, num_classes: int, sha256: str = "", error: float = 0.0) -> ModelEntry:
    """CIFAR-10 or CIFAR-100, shortcuts of 1x1 convolutions."""
    page = "https://github.com/chenyaofo/pytorch-cifar-models"
    known = (PublicWeights(f"chenyaofo's cifar{num_classes}_resnet{depth}", sha256, error),) if sha256 else ()
    source = f"They are at {page}." if sha256 else f"None are public; {page} has those of other depths."
    normalization = CIFAR10 if num_classes == 10 else CIFAR100
    builder = partial(CifarResNet, depth, shortcut="B")
    return ModelEntry(builder, num_classes, *normalization, 32, f"CIFAR-{num_classes}, chenyaofo", source, known)


MODELS: Mapping[str, ModelEntry] = MappingProxyType(
    {
        "wrn28_10": ModelEntry(partial(WideResNet, 28, 10), 10, *RAW, 32, *STANDARD, (WRN28_10,)),
        "wrn40_2": ModelEntry(partial(WideResNet, 40, 2), 10, *HALF, 32, *AUGMIX10),
        "resnext29": ModelEntry(ResNeXt29, 100, *HALF, 32, *AUGMIX100, assumed=RESNEXT29),
        "resnet18": ModelEntry(
            partial(ResNet, BasicBlock, 64, (2, 2, 2, 2)), 1000, *IMAGENET, 224, *TORCHVISION, (RESNET18,)
        ),
        "resnet50": ModelEntry(
            partial(ResNet, Bottleneck, 256, (3, 4, 6, 3)), 1000, *IMAGENET, 224, *TORCHVISION, RESNET50
        ),
        "resnet26": ModelEntry(ResNet26, 10, *HALF, 32, *TTT),
        "resnet26_gn": ModelEntry(partial(ResNet26, groups=8), 10, *HALF, 32, *TTT),
        "cifar_resnet20": akamaster(20, "12fca82f0bebc4135bf1f32f6e3710e61d5108578464b84fd6d7f5c1b04036c8", 8.22),
        "cifar_resnet32": akamaster(32, "d509ac18", 7.37),
        "cifar_resnet44": akamaster(44, "014dd654", 6.90),
        "cifar_resnet56": akamaster(56, "4bfd9763", 6.61),
        "cifar_resnet110": akamaster(110, "1d1ed7c2", 6.32),
        "cifar_resnet20_b": chenyaofo(20, 10, "4118986f", 7.40),
        "cifar_resnet32_b": chenyaofo(32, 10, "ef93fc4d", 6.47),
        "cifar_resnet44_b": chenyaofo(44, 10, "2a3cabcb", 5.99),
        "cifar_resnet56_b": chenyaofo(56, 10, "187c023a", 5.63),
        "cifar_resnet110_b": chenyaofo(110, 10),
        "cifar100_resnet20_b": chenyaofo(20, 100, "23dac2f1", 31.17),
        "cifar100_resnet32_b": chenyaofo(32, 100, "84213ce6", 29.84),
        "cifar100_resnet44_b": chenyaofo(44, 100, "ffe32858", 28.37),
        "cifar100_resnet56_b": chenyaofo(
            56, 100, "f2eff4c8461ca1e0d39af83a65f7243bf7d29ec421efee3064bcee93a3caaa73", 27.37
        ),
        "cifar100_resnet110_b": chenyaofo(110, 100),
        "small_resnet": ModelEntry(SmallResNet, 10, *RAW, 32, *EMBEDDED, (FASHION,)),
        "vit_mae": ModelEntry(ViTMAE, 10, *HALF, 32, *MAE),
        "pointnet": ModelEntry(PointNet, 40, *RAW, 1024, *YANX27, clouds=True),
        "pointnet_stn": ModelEntry(partial(PointNet, transforms="input"), 40, *RAW, 1024, *FXIA22, clouds=True),
        "pointnet_vanilla": ModelEntry(VanillaPointNet, 40, *RAW, 1024, *WANG_POINTNET, clouds=True),
        "dgcnn": ModelEntry(DGCNN, 40, *RAW, 1024, *WANG, clouds=True),
        "small_pointnet": ModelEntry(SmallPointNet, 12, *RAW, 1024, *EMBEDDED_CLOUDS, clouds=True),
    }
)
