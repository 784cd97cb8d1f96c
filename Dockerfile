# The demo in a container: docker build --tag fednet_emu . && docker run --rm fednet_emu
# Another run, whose folder stays: docker run --rm --user "$(id -u)" --volume "$PWD:/work" fednet_emu run quickstart --seed 1
FROM python:3.11-slim
# an index with PyTorch for processors alone makes the image some gigabytes smaller: --build-arg PIP_EXTRA_INDEX_URL=...
ARG PIP_EXTRA_INDEX_URL
COPY . /source
RUN python -m pip install --no-cache-dir --constraint /source/constraints.txt /source
RUN useradd --create-home fednet && install --directory --owner fednet /work
USER fednet
WORKDIR /work
# for a user of the host, who has no home in the image
ENV MPLCONFIGDIR=/tmp/matplotlib OMP_NUM_THREADS=1
ENTRYPOINT ["fednet"]
CMD ["run", "quickstart", "--out", "results/demo"]
