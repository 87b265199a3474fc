# Spark and Airflow of docker-compose.yaml: the locked packages, Spark's jars, and the project.
FROM python:3.11-slim-bookworm

RUN apt-get update \
    && apt-get install --yes --no-install-recommends openjdk-17-jre-headless \
    && rm -rf /var/lib/apt/lists/*

WORKDIR /opt/batchledger
COPY requirements.txt ./
# Some packages are there as sources only. setuptools comes first, so that pip fetches none without a digest to build them.
RUN sed -n '/^setuptools==/,/# via/p' requirements.txt > /tmp/setuptools.txt \
    && pip install --no-cache-dir --require-hashes --requirement /tmp/setuptools.txt \
    && pip install --no-cache-dir --no-build-isolation --require-hashes --requirement requirements.txt

COPY pyproject.toml README.md LICENSE ./
COPY include/ include/
# The same pinned list that `batchledger up` resolves; nothing is fetched when a container starts.
RUN pip install --no-cache-dir --no-deps --no-build-isolation --editable . \
    && python -c "from batchledger.local.stack.home import Home; from batchledger.local.stack.jars import fetch_jars; fetch_jars(Home.of_project(), 'spark')"
COPY dags/ dags/
COPY plugins/ plugins/
COPY spark_jobs/ spark_jobs/

# A volume that is mounted there for the first time belongs to the same user.
RUN useradd --create-home --uid 10001 batchledger \
    && install --directory --owner=batchledger --group=batchledger --mode=700 /opt/airflow /opt/lake
USER batchledger
