# The benchmark on NVIDIA's PyTorch image. Written and linted (hadolint); it has not been built yet.
#
#   docker build --tag gpt3-benchmark .
#   enroot import --output image.sqsh dockerd://gpt3-benchmark:latest     # to a folder that all nodes see
#   sbatch run_gpt3.sh LOG_DIR BPE_DIR ./image.sqsh                       # or docker://REGISTRY#NAME:TAG of yours
# What begins with neither . nor / is for pyxis an image of a registry: of Docker Hub unless REGISTRY# names another.
# Another image must have the PyTorch that pyproject.toml asks for: 26.02 has 2.11.0a0, 25.12 has 2.10.0a0 and is too old.
ARG IMAGE=nvcr.io/nvidia/pytorch:26.02-py3
FROM ${IMAGE}
WORKDIR /workspace/gpt3-training-benchmark
COPY requirements.lock ./
# The image's PyTorch, with its CUDA packages, NumPy and apex are built for each other and stay as they are: they are left
# out of what is installed, nothing is installed for what it depends on, and the build ends if one of them changed. The
# image's list of constraints, which pip reads by itself, is left aside: it names other versions of what is installed here.
ENV PIP_CONSTRAINT=
SHELL ["/bin/bash", "-o", "pipefail", "-c"]
RUN pip list --format=freeze | { grep -iE '^(torch|numpy|apex)[=@ ]' || true; } >/tmp/kept \
    && grep -vE '^(#|torch==|numpy==)' requirements.lock >/tmp/wanted \
    && pip install --no-cache-dir --no-deps --requirement /tmp/wanted \
    && pip list --format=freeze | { grep -iE '^(torch|numpy|apex)[=@ ]' || true; } | diff /tmp/kept -
COPY . .
RUN python foundation/dependencies.py && pip install --no-cache-dir --no-deps --no-build-isolation .
