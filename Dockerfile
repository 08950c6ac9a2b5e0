# dpweave on the command line, as an ordinary user. The folder of your data is /data:
#   docker build --tag dpweave .
#   docker run --rm --user "$(id -u):$(id -g)" --volume "$PWD:/data" dpweave draft shop.duckdb -o plan.toml
FROM python:3.13-slim AS build
WORKDIR /project
COPY pyproject.toml README.md LICENSE ./
COPY src ./src
RUN pip wheel --no-cache-dir --wheel-dir /wheels ".[postgres,fake]"

FROM python:3.13-slim
COPY --from=build /wheels /wheels
RUN pip install --no-cache-dir --no-index --find-links /wheels "dpweave[postgres,fake]" && rm -r /wheels
RUN useradd --uid 1000 --create-home dpweave && install --directory --owner dpweave /data
# Whoever --user names has no home here.
ENV HOME=/tmp
USER dpweave
WORKDIR /data
ENTRYPOINT ["dpweave"]
CMD ["--help"]
