# syntax=docker/dockerfile:1
# The wheel is built in the first stage, so that the second holds no compiler and no sources.
FROM python:3.12-slim AS build
WORKDIR /src
COPY pyproject.toml README.md LICENSE ./
COPY src ./src
RUN pip install --no-cache-dir build==1.3.0 && python -m build --wheel --outdir /wheels

FROM python:3.12-slim
# Which extras to install: `docker build --build-arg EXTRAS=[server,mcp] .`
ARG EXTRAS=""
# The wheel is looked at, not copied: what a later layer removes would stay in the image.
RUN --mount=type=bind,from=build,source=/wheels,target=/wheels \
    pip install --no-cache-dir "$(echo /wheels/*.whl)${EXTRAS}" \
 && useradd --create-home --uid 10001 omnigraph \
 && install -d -o omnigraph /data
# By its number: Kubernetes cannot tell from a name that it is not root.
USER 10001
WORKDIR /data
VOLUME /data
ENTRYPOINT ["omnigraph"]
CMD ["--help"]
