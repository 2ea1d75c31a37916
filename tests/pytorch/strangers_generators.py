"""Programs in the ways of public repositories, as those of `strangers_public.py`: pictures that are drawn, or teach themselves."""

import copy
import math
from collections import namedtuple
from functools import partial

import numpy as np
from strangers import begin, some


def style_gan(torch, compiled=False):
    """StyleGAN2: equalised rates, modulated convolutions by groups, a blur, R1 and path length penalties, deviations of minibatches."""
    nn, F, autograd = torch.nn, torch.nn.functional, torch.autograd

    class EqualLinear(nn.Module):
        def __init__(self, in_dim, out_dim, lr_mul=1.0, bias=True, bias_init=0, activation=None):
            super().__init__()
            self.weight = nn.Parameter(torch.randn(out_dim, in_dim).div_(lr_mul))
            self.bias = nn.Parameter(torch.zeros(out_dim).fill_(bias_init)) if bias else None
            self.scale, self.lr_mul, self.activation = (1 / math.sqrt(in_dim)) * lr_mul, lr_mul, activation

        def forward(self, input):
            if self.activation:
                return F.leaky_relu(F.linear(input, self.weight * self.scale) + self.bias * self.lr_mul, 0.2) * 2**0.5
            return F.linear(input, self.weight * self.scale, bias=self.bias * self.lr_mul)

        def __repr__(self):
            return f"{self.__class__.__name__}({self.weight.shape[1]}, {self.weight.shape[0]})"

    def make_kernel(k):
        k = torch.tensor(k, dtype=torch.float32)
        if k.ndim == 1:
            k = k[None, :] * k[:, None]
        k /= k.sum()
        return k

    class Blur(nn.Module):
        def __init__(self, kernel, pad):
            super().__init__()
            self.register_buffer("kernel", make_kernel(kernel))
            self.pad = pad

        def forward(self, x):
            n, c, h, w = x.shape
            x = F.pad(x.reshape(n * c, 1, h, w), [*self.pad, *self.pad])
            x = F.conv2d(x, torch.flip(self.kernel, [0, 1])[None, None])
            return x.view(n, c, *x.shape[2:])

    class ModulatedConv2d(nn.Module):
        def __init__(self, cin, cout, k, style_dim, demodulate=True, upsample=False):
            super().__init__()
            self.eps, self.kernel_size, self.cin, self.cout, self.upsample = 1e-8, k, cin, cout, upsample
            self.scale, self.padding, self.demodulate = 1 / math.sqrt(cin * k**2), k // 2, demodulate
            self.weight = nn.Parameter(torch.randn(1, cout, cin, k, k))
            self.modulation = EqualLinear(style_dim, cin, bias_init=1)
            self.blur = Blur([1, 3, 3, 1], (1, 1)) if upsample else None

        def forward(self, input, style):
            batch, cin, height, width = input.shape
            style = self.modulation(style).view(batch, 1, cin, 1, 1)
            weight = self.scale * self.weight * style
            if self.demodulate:
                demod = torch.rsqrt(weight.pow(2).sum([2, 3, 4]) + 1e-8)
                weight = weight * demod.view(batch, self.cout, 1, 1, 1)
            weight = weight.view(batch * self.cout, cin, self.kernel_size, self.kernel_size)
            input = input.view(1, batch * cin, height, width)
            if self.upsample:
                weight = weight.view(batch, self.cout, cin, self.kernel_size, self.kernel_size)
                weight = weight.transpose(1, 2).reshape(batch * cin, self.cout, self.kernel_size, self.kernel_size)
                out = F.conv_transpose2d(input, weight, padding=0, stride=2, groups=batch)
                return self.blur(out.view(batch, self.cout, *out.shape[-2:]))
            out = F.conv2d(input, weight, padding=self.padding, groups=batch)
            return out.view(batch, self.cout, *out.shape[-2:])

    class Generator(nn.Module):
        def __init__(self, style_dim=6):
            super().__init__()
            self.style = nn.Sequential(*[EqualLinear(style_dim, style_dim, lr_mul=0.1, activation="fused_lrelu") for _ in range(2)])
            self.input = nn.Parameter(torch.randn(1, 6, 2, 2))
            self.conv1, self.conv2 = ModulatedConv2d(6, 6, 3, style_dim), ModulatedConv2d(6, 4, 3, style_dim, upsample=True)
            self.to_rgb = ModulatedConv2d(4, 1, 1, style_dim, demodulate=False)
            self.noise = nn.Parameter(torch.zeros(1))

        def forward(self, z, noise, return_latents=False):
            latent = self.style(z * torch.rsqrt(torch.mean(z**2, dim=1, keepdim=True) + 1e-8)).unsqueeze(1).repeat(1, 3, 1)
            out = self.conv1(self.input.repeat(latent.shape[0], 1, 1, 1), latent[:, 0])
            out = F.leaky_relu(out + self.noise * noise[..., ::2, ::2], negative_slope=0.2)
            out = F.leaky_relu(self.conv2(out, latent[:, 1]) + self.noise * noise, negative_slope=0.2)
            image = self.to_rgb(out, latent[:, 2])
            return (image, latent) if return_latents else (image, None)

    class Discriminator(nn.Module):
        def __init__(self):
            super().__init__()
            self.convs = nn.Sequential(nn.Conv2d(1, 6, 3, padding=1), nn.LeakyReLU(0.2), nn.Conv2d(6, 6, 3, stride=2, padding=1))
            self.final_linear = nn.Sequential(EqualLinear(7 * 4, 6, activation="fused_lrelu"), EqualLinear(6, 1))
            self.stddev_group = 2

        def forward(self, input):
            out = F.leaky_relu(self.convs(input), 0.2)
            batch, channel, height, width = out.shape
            group = min(batch, self.stddev_group)
            stddev = out.view(group, -1, 1, channel, height, width)
            stddev = torch.sqrt(stddev.var(0, unbiased=False) + 1e-8)
            stddev = stddev.mean([2, 3, 4], keepdims=True).squeeze(2).repeat(group, 1, height, width)
            return self.final_linear(torch.cat([out, stddev], 1).view(batch, -1))

    def requires_grad(model, flag=True):
        for p in model.parameters():
            p.requires_grad = flag

    def accumulate(model1, model2, decay=0.9):
        par1, par2 = dict(model1.named_parameters()), dict(model2.named_parameters())
        for k in par1.keys():
            par1[k].data.mul_(decay).add_(par2[k].data, alpha=1 - decay)

    def d_r1_loss(real_pred, real_img):
        (grad_real,) = autograd.grad(outputs=real_pred.sum(), inputs=real_img, create_graph=True)
        return grad_real.pow(2).reshape(grad_real.shape[0], -1).sum(1).mean()

    def g_path_regularize(fake_img, latents, mean_path_length, noise, decay=0.01):
        noise = noise / math.sqrt(fake_img.shape[2] * fake_img.shape[3])
        (grad,) = autograd.grad(outputs=(fake_img * noise).sum(), inputs=latents, create_graph=True)
        path_lengths = torch.sqrt(grad.pow(2).sum(2).mean(1))
        path_mean = mean_path_length + decay * (path_lengths.mean() - mean_path_length)
        return (path_lengths - path_mean).pow(2).mean(), path_mean.detach(), path_lengths

    generator, discriminator = begin(torch, Generator()), begin(torch, Discriminator(), 1)
    g_ema = Generator().eval()
    g_ema.load_state_dict(generator.state_dict())
    accumulate(g_ema, generator, 0)
    g_optim = torch.optim.Adam(generator.parameters(), lr=2e-3 * 4 / 5, betas=(0**0.8, 0.99**0.8))
    d_optim = torch.optim.Adam(discriminator.parameters(), lr=2e-3 * 16 / 17, betas=(0**0.94, 0.99**0.94))
    d_logistic_loss = lambda real, fake: F.softplus(-real).mean() + F.softplus(fake).mean()
    run_d = torch.compile(discriminator, backend="eager") if compiled else discriminator
    mean_path_length, out = 0, []
    for i in range(3):
        real_img, noise = some(torch, 4, 1, 4, 4, seed=i), some(torch, 4, 1, 4, 4, seed=20 + i)
        requires_grad(generator, False)
        requires_grad(discriminator, True)
        fake_img, _ = generator(some(torch, 4, 6, seed=30 + i), noise)
        d_loss = d_logistic_loss(run_d(real_img), run_d(fake_img))
        discriminator.zero_grad()
        d_loss.backward()
        d_optim.step()
        if i % 2 == 0:
            real_img.requires_grad = True
            real_pred = discriminator(real_img)
            r1_loss = d_r1_loss(real_pred, real_img)
            discriminator.zero_grad()
            (10 / 2 * r1_loss * 16 + 0 * real_pred[0]).backward()
            d_optim.step()
            out.append(r1_loss.item())
        requires_grad(generator, True)
        requires_grad(discriminator, False)
        fake_img, _ = generator(some(torch, 4, 6, seed=40 + i), noise)
        g_loss = F.softplus(-run_d(fake_img)).mean()
        generator.zero_grad()
        g_loss.backward()
        g_optim.step()
        fake_img, latents = generator(some(torch, 4, 6, seed=50 + i), noise, return_latents=True)
        path_loss, mean_path_length, path_lengths = g_path_regularize(fake_img, latents, mean_path_length, some(torch, 4, 1, 4, 4, seed=60 + i))
        generator.zero_grad()
        (2 * 4 * path_loss + 0 * fake_img[0, 0, 0, 0]).backward()
        g_optim.step()
        accumulate(g_ema, generator)
        out += [d_loss.item(), g_loss.item(), path_loss.item(), path_lengths.mean().item()]
    return [*out, float(mean_path_length), g_ema(some(torch, 4, 6), noise)[0].abs().mean().item()]


def guided_diffusion(torch, compiled=False):
    """Denoising by a UNet as lucidrains writes it: sinusoidal times, scales and shifts, linear attention, v and SNR weights, DDIM, EMA."""
    nn, F = torch.nn, torch.nn.functional
    ModelPrediction = namedtuple("ModelPrediction", ["pred_noise", "pred_x_start"])

    def exists(x):
        return x is not None

    def default(val, d):
        return val if exists(val) else d() if callable(d) else d

    class Residual(nn.Module):
        def __init__(self, fn):
            super().__init__()
            self.fn = fn

        def forward(self, x, *args, **kwargs):
            return self.fn(x, *args, **kwargs) + x

    def Upsample(dim, dim_out=None):
        return nn.Sequential(nn.Upsample(scale_factor=2, mode="nearest"), nn.Conv2d(dim, default(dim_out, dim), 3, padding=1))

    def Downsample(dim, dim_out=None):
        return nn.Sequential(nn.PixelUnshuffle(2), nn.Conv2d(dim * 4, default(dim_out, dim), 1))

    class RMSNorm(nn.Module):
        def __init__(self, dim):
            super().__init__()
            self.g = nn.Parameter(torch.ones(1, dim, 1, 1))

        def forward(self, x):
            return F.normalize(x, dim=1) * self.g * (x.shape[1] ** 0.5)

    class PreNorm(nn.Module):
        def __init__(self, dim, fn):
            super().__init__()
            self.fn, self.norm = fn, RMSNorm(dim)

        def forward(self, x):
            return self.fn(self.norm(x))

    class SinusoidalPosEmb(nn.Module):
        def __init__(self, dim):
            super().__init__()
            self.dim = dim

        def forward(self, x):
            device, half_dim = x.device, self.dim // 2
            emb = math.log(10000) / (half_dim - 1)
            emb = torch.exp(torch.arange(half_dim, device=device) * -emb)
            emb = x[:, None] * emb[None, :]
            return torch.cat((emb.sin(), emb.cos()), dim=-1)

    class Block(nn.Module):
        def __init__(self, dim, dim_out, groups=2):
            super().__init__()
            self.proj, self.norm, self.act = nn.Conv2d(dim, dim_out, 3, padding=1), nn.GroupNorm(groups, dim_out), nn.SiLU()

        def forward(self, x, scale_shift=None):
            x = self.norm(self.proj(x))
            if exists(scale_shift):
                scale, shift = scale_shift
                x = x * (scale + 1) + shift
            return self.act(x)

    class ResnetBlock(nn.Module):
        def __init__(self, dim, dim_out, *, time_emb_dim=None, groups=2):
            super().__init__()
            self.mlp = nn.Sequential(nn.SiLU(), nn.Linear(time_emb_dim, dim_out * 2)) if exists(time_emb_dim) else None
            self.block1, self.block2 = Block(dim, dim_out, groups=groups), Block(dim_out, dim_out, groups=groups)
            self.res_conv = nn.Conv2d(dim, dim_out, 1) if dim != dim_out else nn.Identity()

        def forward(self, x, time_emb=None):
            scale_shift = None
            if exists(self.mlp) and exists(time_emb):
                scale_shift = self.mlp(time_emb)[:, :, None, None].chunk(2, dim=1)
            h = self.block1(x, scale_shift=scale_shift)
            return self.block2(h) + self.res_conv(x)

    class LinearAttention(nn.Module):
        def __init__(self, dim, heads=2, dim_head=4):
            super().__init__()
            self.scale, self.heads, hidden = dim_head**-0.5, heads, dim_head * heads
            self.to_qkv, self.to_out = nn.Conv2d(dim, hidden * 3, 1, bias=False), nn.Sequential(nn.Conv2d(hidden, dim, 1), RMSNorm(dim))

        def forward(self, x):
            b, c, h, w = x.shape
            q, k, v = map(lambda t: t.reshape(b, self.heads, -1, h * w), self.to_qkv(x).chunk(3, dim=1))
            q, k = q.softmax(dim=-2) * self.scale, k.softmax(dim=-1)
            context = torch.einsum("b h d n, b h e n -> b h d e", k, v / (h * w))
            out = torch.einsum("b h d e, b h d n -> b h e n", context, q)
            return self.to_out(out.reshape(b, -1, h, w))

    class Unet(nn.Module):
        def __init__(self, dim=4, dim_mults=(1, 2), channels=1, num_classes=3):
            super().__init__()
            self.init_conv = nn.Conv2d(channels, dim, 3, padding=1)
            dims, time_dim = [dim, *map(lambda m: dim * m, dim_mults)], dim * 4
            in_out = list(zip(dims[:-1], dims[1:]))
            block_klass = partial(ResnetBlock, groups=2)
            self.time_mlp = nn.Sequential(SinusoidalPosEmb(dim), nn.Linear(dim, time_dim), nn.GELU(), nn.Linear(time_dim, time_dim))
            self.classes_emb, self.null_classes_emb = nn.Embedding(num_classes, time_dim), nn.Parameter(torch.randn(time_dim))
            self.downs, self.ups = nn.ModuleList([]), nn.ModuleList([])
            for ind, (dim_in, dim_out) in enumerate(in_out):
                last = ind >= len(in_out) - 1
                self.downs.append(nn.ModuleList([
                    block_klass(dim_in, dim_in, time_emb_dim=time_dim), Residual(PreNorm(dim_in, LinearAttention(dim_in))),
                    Downsample(dim_in, dim_out) if not last else nn.Conv2d(dim_in, dim_out, 3, padding=1),
                ]))  # fmt: skip
            self.mid = block_klass(dims[-1], dims[-1], time_emb_dim=time_dim)
            for ind, (dim_in, dim_out) in enumerate(reversed(in_out)):
                last = ind == len(in_out) - 1
                self.ups.append(nn.ModuleList([
                    block_klass(dim_out + dim_in, dim_out, time_emb_dim=time_dim),
                    Upsample(dim_out, dim_in) if not last else nn.Conv2d(dim_out, dim_in, 3, padding=1),
                ]))  # fmt: skip
            self.final_conv = nn.Conv2d(dim * 2, channels, 1)

        def forward(self, x, time, classes, keep):
            emb = torch.where(keep[:, None], self.classes_emb(classes), self.null_classes_emb[None].expand(len(x), -1))
            t = self.time_mlp(time) + emb
            x = self.init_conv(x)
            r, h = x.clone(), []
            for block, attn, downsample in self.downs:
                x = attn(block(x, t))
                h.append(x)
                x = downsample(x)
            x = self.mid(x, t)
            for block, upsample in self.ups:
                x = upsample(block(torch.cat((x, h.pop()), dim=1), t))
            return self.final_conv(torch.cat((x, r), dim=1))

    def extract(a, t, x_shape):
        b, *_ = t.shape
        out = a.gather(-1, t)
        return out.reshape(b, *((1,) * (len(x_shape) - 1)))

    def cosine_beta_schedule(timesteps, s=0.008):
        x = torch.linspace(0, timesteps, timesteps + 1, dtype=torch.float64)
        alphas_cumprod = torch.cos(((x / timesteps) + s) / (1 + s) * math.pi * 0.5) ** 2
        alphas_cumprod = alphas_cumprod / alphas_cumprod[0]
        return torch.clip(1 - (alphas_cumprod[1:] / alphas_cumprod[:-1]), 0, 0.999)

    class GaussianDiffusion(nn.Module):
        def __init__(self, model, *, image_size, timesteps=20, sampling_timesteps=4, min_snr_gamma=5):
            super().__init__()
            self.model, self.image_size = model, image_size
            betas = cosine_beta_schedule(timesteps)
            alphas = 1.0 - betas
            alphas_cumprod = torch.cumprod(alphas, dim=0)
            (timesteps,) = betas.shape
            self.num_timesteps, self.sampling_timesteps = int(timesteps), default(sampling_timesteps, timesteps)
            register_buffer = lambda name, val: self.register_buffer(name, val.to(torch.float32))
            register_buffer("alphas_cumprod", alphas_cumprod)
            register_buffer("sqrt_alphas_cumprod", torch.sqrt(alphas_cumprod))
            register_buffer("sqrt_one_minus_alphas_cumprod", torch.sqrt(1.0 - alphas_cumprod))
            register_buffer("sqrt_recip_alphas_cumprod", torch.sqrt(1.0 / alphas_cumprod))
            register_buffer("sqrt_recipm1_alphas_cumprod", torch.sqrt(1.0 / alphas_cumprod - 1))
            snr = alphas_cumprod / (1 - alphas_cumprod)
            maybe_clipped_snr = snr.clone()
            maybe_clipped_snr.clamp_(max=min_snr_gamma)
            register_buffer("loss_weight", maybe_clipped_snr / (snr + 1))

        @property
        def device(self):
            return self.betas.device if hasattr(self, "betas") else next(self.buffers()).device

        def model_predictions(self, x, t, classes, cond_scale=3.0):
            ones = torch.ones(len(x), dtype=torch.bool, device=x.device)
            logits, null = self.model(x, t, classes, ones), self.model(x, t, classes, ~ones)
            v = null + (logits - null) * cond_scale
            x_start = extract(self.sqrt_alphas_cumprod, t, x.shape) * x - extract(self.sqrt_one_minus_alphas_cumprod, t, x.shape) * v
            x_start.clamp_(-1.0, 1.0)
            noise = (extract(self.sqrt_recip_alphas_cumprod, t, x.shape) * x - x_start) / extract(self.sqrt_recipm1_alphas_cumprod, t, x.shape)
            return ModelPrediction(noise, x_start)

        @torch.inference_mode()
        def ddim_sample(self, img, classes):
            times = torch.linspace(-1, self.num_timesteps - 1, steps=self.sampling_timesteps + 1)
            times = list(reversed(times.int().tolist()))
            for time, time_next in list(zip(times[:-1], times[1:])):
                time_cond = torch.full((img.shape[0],), time, device=self.device, dtype=torch.long)
                pred_noise, x_start, *_ = self.model_predictions(img, time_cond, classes)
                if time_next < 0:
                    img = x_start
                    continue
                alpha_next = self.alphas_cumprod[time_next]
                img = x_start * alpha_next.sqrt() + (1 - alpha_next).sqrt() * pred_noise
            return (img + 1) * 0.5

        def q_sample(self, x_start, t, noise=None):
            noise = default(noise, lambda: torch.randn_like(x_start))
            shape = x_start.shape
            return extract(self.sqrt_alphas_cumprod, t, shape) * x_start + extract(self.sqrt_one_minus_alphas_cumprod, t, shape) * noise

        def forward(self, img, t, noise, classes, keep):
            (b, _c, h, w), img_size = img.shape, self.image_size
            assert h == img_size and w == img_size, f"height and width of image must be {img_size}"
            img = img * 2 - 1
            out = self.model(self.q_sample(img, t, noise), t, classes, keep)
            target = extract(self.sqrt_alphas_cumprod, t, img.shape) * noise - extract(self.sqrt_one_minus_alphas_cumprod, t, img.shape) * img
            loss = F.mse_loss(out, target, reduction="none")
            loss = loss.flatten(1).mean(dim=1) * extract(self.loss_weight, t, (b,))
            return loss.mean()

    diffusion = GaussianDiffusion(begin(torch, Unet(), scale=0.7), image_size=8)
    ema = copy.deepcopy(diffusion)
    ema.requires_grad_(False)
    opt, out = torch.optim.Adam(diffusion.parameters(), lr=3e-3, betas=(0.9, 0.99)), []
    run, rng = torch.compile(diffusion, backend="eager") if compiled else diffusion, np.random.RandomState(3)
    for i in range(3):
        img, noise = torch.sigmoid(some(torch, 4, 1, 8, 8, seed=i)), some(torch, 4, 1, 8, 8, seed=10 + i)
        t, labels = (torch.from_numpy(rng.randint(0, n, (4,))).long() for n in (20, 3))
        loss = run(img, t, noise, labels, torch.from_numpy(rng.rand(4) > 0.5))
        loss.backward()
        total = torch.nn.utils.clip_grad_norm_(diffusion.parameters(), 1.0)
        opt.step()
        opt.zero_grad()
        for current, moving in zip(diffusion.parameters(), ema.parameters()):
            moving.data.lerp_(current.data, 1 - 0.9)
        for current, moving in zip(diffusion.buffers(), ema.buffers()):
            moving.copy_(current)
        out += [loss.item(), total.item()]
    sampled = ema.eval().ddim_sample(some(torch, 2, 1, 8, 8, seed=77), torch.tensor([0, 2]))
    return [*out, sampled.mean().item(), sampled.std().item(), *sampled[0, 0, 0].tolist()]


def dino(torch, compiled=False):
    """DINO: crops of two sizes through a small ViT with interpolated places, a frozen last layer, a centred teacher, schedules of arrays."""
    nn, F = torch.nn, torch.nn.functional

    def drop_path(x, drop_prob=0.0, training=False):
        if drop_prob == 0.0 or not training:
            return x
        keep_prob = 1 - drop_prob
        random_tensor = keep_prob + torch.rand((x.shape[0],) + (1,) * (x.ndim - 1), dtype=x.dtype, device=x.device)
        return x.div(keep_prob) * random_tensor.floor_()

    class Block(nn.Module):
        def __init__(self, dim, num_heads):
            super().__init__()
            self.norm1, self.norm2 = nn.LayerNorm(dim, eps=1e-6), nn.LayerNorm(dim, eps=1e-6)
            self.num_heads, self.scale = num_heads, (dim // num_heads) ** -0.5
            self.qkv, self.proj = nn.Linear(dim, dim * 3, bias=True), nn.Linear(dim, dim)
            self.mlp = nn.Sequential(nn.Linear(dim, 2 * dim), nn.GELU(approximate="tanh"), nn.Linear(2 * dim, dim))
            self.gamma = nn.Parameter(1e-1 * torch.ones(dim), requires_grad=True)

        def attend(self, x):
            B, N, C = x.shape
            q, k, v = self.qkv(x).reshape(B, N, 3, self.num_heads, C // self.num_heads).permute(2, 0, 3, 1, 4).unbind(0)
            attn = ((q @ k.transpose(-2, -1)) * self.scale).softmax(dim=-1)
            return self.proj((attn @ v).transpose(1, 2).reshape(B, N, C)), attn

        def forward(self, x, return_attention=False):
            y, attn = self.attend(self.norm1(x))
            if return_attention:
                return attn
            x = x + drop_path(self.gamma * y, 0.0, self.training)
            return x + drop_path(self.mlp(self.norm2(x)), 0.0, self.training)

    class VisionTransformer(nn.Module):
        def __init__(self, dim=8, patch=4, size=16):
            super().__init__()
            self.embed_dim, self.patch = dim, patch
            self.patch_embed = nn.Conv2d(3, dim, kernel_size=patch, stride=patch)
            self.cls_token = nn.Parameter(torch.zeros(1, 1, dim))
            self.pos_embed = nn.Parameter(torch.zeros(1, (size // patch) ** 2 + 1, dim))
            self.blocks = nn.ModuleList([Block(dim, 2) for _ in range(2)])
            self.norm, self.head = nn.LayerNorm(dim), nn.Identity()
            nn.init.trunc_normal_(self.pos_embed, std=0.02)
            self.apply(self._init_weights)

        def _init_weights(self, m):
            if isinstance(m, nn.Linear):
                nn.init.trunc_normal_(m.weight, std=0.02)
                if isinstance(m, nn.Linear) and m.bias is not None:
                    nn.init.constant_(m.bias, 0)

        def interpolate_pos_encoding(self, x, w, h):
            npatch, N, dim = x.shape[1] - 1, self.pos_embed.shape[1] - 1, x.shape[-1]
            if npatch == N and w == h:
                return self.pos_embed
            class_pos_embed, patch_pos_embed = self.pos_embed[:, 0], self.pos_embed[:, 1:]
            w0, h0 = w // self.patch + 0.1, h // self.patch + 0.1
            patch_pos_embed = F.interpolate(
                patch_pos_embed.reshape(1, int(math.sqrt(N)), int(math.sqrt(N)), dim).permute(0, 3, 1, 2),
                scale_factor=(w0 / math.sqrt(N), h0 / math.sqrt(N)), mode="bicubic",
            )  # fmt: skip
            assert int(w0) == patch_pos_embed.shape[-2] and int(h0) == patch_pos_embed.shape[-1]
            return torch.cat((class_pos_embed.unsqueeze(0), patch_pos_embed.permute(0, 2, 3, 1).view(1, -1, dim)), dim=1)

        def forward(self, x):
            B, nc, w, h = x.shape
            x = self.patch_embed(x).flatten(2).transpose(1, 2)
            x = torch.cat((self.cls_token.expand(B, -1, -1), x), dim=1)
            x = x + self.interpolate_pos_encoding(x, w, h)
            for blk in self.blocks:
                x = blk(x)
            return self.norm(x)[:, 0]

    class DINOHead(nn.Module):
        def __init__(self, in_dim, out_dim, norm_last_layer=True):
            super().__init__()
            self.mlp = nn.Sequential(nn.Linear(in_dim, 12), nn.GELU(), nn.Linear(12, 6))
            self.last_layer = nn.utils.weight_norm(nn.Linear(6, out_dim, bias=False))
            self.last_layer.weight_g.data.fill_(1)
            if norm_last_layer:
                self.last_layer.weight_g.requires_grad = False

        def forward(self, x):
            return self.last_layer(nn.functional.normalize(self.mlp(x), dim=-1, p=2))

    class MultiCropWrapper(nn.Module):
        def __init__(self, backbone, head):
            super().__init__()
            backbone.fc, backbone.head = nn.Identity(), nn.Identity()
            self.backbone, self.head = backbone, head

        def forward(self, x):
            if not isinstance(x, list):
                x = [x]
            idx_crops = torch.cumsum(torch.unique_consecutive(torch.tensor([inp.shape[-1] for inp in x]), return_counts=True)[1], 0)
            start_idx, output = 0, torch.empty(0).to(x[0].device)
            for end_idx in idx_crops:
                _out = self.backbone(torch.cat(x[start_idx:end_idx]))
                if isinstance(_out, tuple):
                    _out = _out[0]
                output = torch.cat((output, _out))
                start_idx = end_idx
            return self.head(output)

    class DINOLoss(nn.Module):
        def __init__(self, out_dim, ncrops, center_momentum=0.9):
            super().__init__()
            self.ncrops, self.center_momentum = ncrops, center_momentum
            self.register_buffer("center", torch.zeros(1, out_dim))
            self.teacher_temp_schedule = np.concatenate((np.linspace(0.04, 0.07, 2), np.ones(2) * 0.07))

        def forward(self, student_output, teacher_output, epoch):
            student_out = (student_output / 0.1).chunk(self.ncrops)
            teacher_out = F.softmax((teacher_output - self.center) / self.teacher_temp_schedule[epoch], dim=-1)
            teacher_out, total_loss, n_loss_terms = teacher_out.detach().chunk(2), 0, 0
            for iq, q in enumerate(teacher_out):
                for v in range(len(student_out)):
                    if v == iq:
                        continue
                    total_loss += torch.sum(-q * F.log_softmax(student_out[v], dim=-1), dim=-1).mean()
                    n_loss_terms += 1
            total_loss /= n_loss_terms
            self.update_center(teacher_output)
            return total_loss

        @torch.no_grad()
        def update_center(self, teacher_output):
            batch_center = torch.sum(teacher_output, dim=0, keepdim=True) / len(teacher_output)
            self.center = self.center * self.center_momentum + batch_center * (1 - self.center_momentum)

    def cosine_scheduler(base_value, final_value, epochs, niter_per_ep):
        iters = np.arange(epochs * niter_per_ep)
        schedule = final_value + 0.5 * (base_value - final_value) * (1 + np.cos(np.pi * iters / len(iters)))
        assert len(schedule) == epochs * niter_per_ep
        return schedule

    def get_params_groups(model):
        regularized, not_regularized = [], []
        for name, param in model.named_parameters():
            if not param.requires_grad:
                continue
            (not_regularized if name.endswith(".bias") or len(param.shape) == 1 else regularized).append(param)
        return [{"params": regularized}, {"params": not_regularized, "weight_decay": 0.0}]

    def cancel_gradients_last_layer(epoch, model, freeze_last_layer):
        if epoch >= freeze_last_layer:
            return
        for n, p in model.named_parameters():
            if "last_layer" in n:
                p.grad = None

    student = begin(torch, MultiCropWrapper(VisionTransformer(), DINOHead(8, 10)))
    teacher = MultiCropWrapper(VisionTransformer(), DINOHead(8, 10, False))
    teacher.load_state_dict(student.state_dict())
    for p in teacher.parameters():
        p.requires_grad = False
    dino_loss, params_groups = DINOLoss(10, 4), get_params_groups(student)
    optimizer, out = torch.optim.AdamW(params_groups), []
    lr_schedule, wd_schedule, momentum_schedule = (cosine_scheduler(a, b, 4, 1) for a, b in ((0.02, 1e-6), (0.04, 0.4), (0.9, 1)))
    run = torch.compile(student, backend="eager") if compiled else student
    for epoch in range(3):
        for i, param_group in enumerate(optimizer.param_groups):
            param_group["lr"] = lr_schedule[epoch]
            if i == 0:
                param_group["weight_decay"] = wd_schedule[epoch]
        images = [some(torch, 3, 3, s, s, seed=10 * epoch + k) for k, s in enumerate((16, 16, 8, 8))]
        teacher_output, student_output = teacher(images[:2]), run(images)
        loss = dino_loss(student_output, teacher_output, epoch)
        if not math.isfinite(loss.item()):
            raise RuntimeError(f"Loss is {loss.item()}, stopping training")
        optimizer.zero_grad()
        loss.backward()
        param_norms = [p.grad.data.norm(2).item() for p in student.parameters() if p.grad is not None]
        cancel_gradients_last_layer(epoch, student, 1)
        optimizer.step()
        with torch.no_grad():
            m = momentum_schedule[epoch]
            for param_q, param_k in zip(student.parameters(), teacher.parameters()):
                param_k.data.mul_(m).add_((1 - m) * param_q.detach().data)
        out += [loss.item(), sum(param_norms), dino_loss.center.abs().sum().item()]
    x = teacher.backbone.patch_embed(images[0]).flatten(2).transpose(1, 2)
    return [*out, teacher.backbone.blocks[0](x, return_attention=True).std().item()]


PROGRAMS = [style_gan, guided_diffusion, dino]
