"""A table made by another library's mechanism (here OpenDP's MST), with dpweave for the rest: sizes, degrees, links.

Needs OpenDP's own extra: pip install 'opendp[mbi]' pandas.
"""

import numpy as np
import opendp.prelude as dp
import pandas as pd
import polars as pl

import dpweave as dw

RHO = 0.0625  # what OpenDP may spend on the table of patients

rng = np.random.default_rng(1)
patients = pd.DataFrame(
    {"id": np.arange(2000), "sex": rng.choice(["f", "m"], 2000), "smokes": rng.choice(["no", "yes"], 2000)}
)
often = np.where(patients.smokes == "yes", 4, 1)
visits = pd.DataFrame({"patient": np.repeat(patients.id, often)})
visits["id"] = np.arange(len(visits))
visits["ward"] = np.where(patients.smokes.loc[visits.patient] == "yes", "lungs", "eyes")
columns = {"sex": ["f", "m"], "smokes": ["no", "yes"]}


def synthesise(frame: pd.DataFrame, rho: float) -> pd.DataFrame:
    """As many synthetic rows as OpenDP's contingency table estimates, for rho of zCDP: one row is one contribution."""
    dp.enable_features("contrib")
    data = pl.from_pandas(frame)
    context = dp.Context.compositor(
        data=data.lazy(), privacy_unit=dp.unit_of(contributions=1), privacy_loss=dp.loss_of(rho=rho)
    )
    table = context.query(rho=rho).contingency_table(keys=columns, algorithm=dp.mbi.MST()).release()
    made = table.synthesize().to_pandas()
    return made[made.sex.isin(columns["sex"]) & made.smokes.isin(columns["smokes"])]  # OpenDP adds a null category


PLAN = dw.Plan.from_toml(f"""
protect = ["patients"]
[tables.patients]
primary_key = ["id"]
mechanism = "external"
external = {{ rho = {RHO} }}
[tables.patients.columns]
id = {{ type = "int64", nullable = false, domain = "key" }}
sex = {{ type = "text", nullable = false, domain = ["f", "m"] }}
smokes = {{ type = "text", nullable = false, domain = ["no", "yes"] }}
[tables.visits]
primary_key = ["id"]
[tables.visits.columns]
id = {{ type = "int64", nullable = false, domain = "key" }}
patient = {{ type = "int64", nullable = false, domain = "key" }}
ward = {{ type = "text", nullable = false, domain = ["eyes", "lungs"] }}
[tables.visits.keys.patient]
columns = ["patient"]
references = "patients"
target = ["id"]
role = "owning"
max_degree = 4
degree_cap = 4
""")

made = synthesise(patients[list(columns)], RHO)
model = dw.fit({"patients": patients, "visits": visits}, PLAN, epsilon=3.0, delta=1e-6, external={"patients": made})
print(model.certificate)
copy = model.sample().to_pandas()
joined = copy["visits"].merge(copy["patients"], left_on="patient", right_on="id")
print(pd.crosstab(joined.smokes, joined.ward))
