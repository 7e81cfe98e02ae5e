# The wheel is built in the first stage, so that the second holds no compiler and no sources.
FROM python:3.12-slim AS build
WORKDIR /src
COPY pyproject.toml README.md LICENSE ./
COPY src ./src
RUN pip install --no-cache-dir build && python -m build --wheel --outdir /wheels

FROM python:3.12-slim
# Which extras to install: `docker build --build-arg EXTRAS=[server,mcp] .`
ARG EXTRAS=""
COPY --from=build /wheels /wheels
RUN pip install --no-cache-dir "$(ls /wheels/*.whl)${EXTRAS}" && rm -r /wheels \
 && useradd --create-home --uid 10001 omnigraph && install -d -o omnigraph /data
USER omnigraph
WORKDIR /data
VOLUME /data
ENTRYPOINT ["omnigraph"]
CMD ["--help"]
