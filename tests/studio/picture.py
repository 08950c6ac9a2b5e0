"""Make the picture in docs/studio.md: ``python -m tests.studio.picture``. It needs Chromium."""

from __future__ import annotations

import base64
import tempfile
from pathlib import Path

from dpweave.studio.server import studio
from tests.browsing import chromium, show
from tests.studio.databases import write_clinic

PICTURE = Path(__file__).parents[2] / "docs" / "drawings" / "studio.png"
WIDTH, HEIGHT = 1024, 900
PLAN = """\
protect = ["patients"]
public = ["wards"]
[tables.wards]
primary_key = ["id"]
[tables.wards.columns]
id = { type = "int64", nullable = false, domain = "key" }
name = { type = "text", nullable = false, domain = ["eyes", "heart", "skin"] }
[tables.patients]
primary_key = ["id"]
rows = 300
[tables.patients.columns]
id = { type = "int64", nullable = false, domain = "key" }
sex = { type = "text", nullable = false, domain = ["f", "m"] }
age = { type = "int64", nullable = false, domain = { low = 0, high = 99, bins = 20 } }
[tables.visits]
primary_key = ["id"]
rows = 500
[tables.visits.columns]
id = { type = "int64", nullable = false, domain = "key" }
patient_id = { type = "int64", nullable = false, domain = "key" }
ward_id = { type = "int64", nullable = false, domain = "key" }
nights = { type = "int64", nullable = false, domain = { low = 0, high = 14, bins = 15 } }
[tables.visits.keys.patient_id]
columns = ["patient_id"]
references = "patients"
target = ["id"]
role = "owning"
max_degree = 3
[tables.visits.keys.ward_id]
columns = ["ward_id"]
references = "wards"
target = ["id"]
role = "attribute"
"""


def main() -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        source = write_clinic(folder / "clinic.sqlite")
        (folder / "plan.toml").write_text(PLAN)
        with (
            studio(
                str(source), folder / "plan.toml", ledger=folder / "ledger.jsonl", shown_source="clinic.sqlite"
            ) as server,
            chromium(folder / "profile") as browser,
        ):
            show(browser, server.link, width=WIDTH)
            browser.set_script_timeout(60)
            browser.execute_async_script("""
              const done = arguments[0];
              const until = (test, then) => test() ? then() : setTimeout(() => until(test, then), 50);
              const drawn = () => document.querySelector('#drawing button');
              until(drawn, () => {
                document.querySelector('[data-step=budget]').click();
                document.getElementById('plan-name').textContent = 'plan.toml';
                until(() => document.querySelector('#help [data-at]'), done);
              });""")
            browser.execute_script(
                "document.getElementById('plan-name').textContent = 'plan.toml';"
                "document.querySelector('#budget .same').remove(); document.activeElement.blur()"
            )
            clip = {"x": 0, "y": 0, "width": WIDTH, "height": HEIGHT, "scale": 0.75}
            taken = browser.execute_cdp_cmd("Page.captureScreenshot", {"captureBeyondViewport": True, "clip": clip})
            PICTURE.write_bytes(base64.b64decode(taken["data"]))


if __name__ == "__main__":
    main()
