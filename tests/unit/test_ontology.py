"""MaxOntSim: the nearest retrieved term, in any ontology and in the Human Phenotype Ontology."""

from __future__ import annotations

from math import log
from pathlib import Path

import pytest

from stream_metrics.core.metrics.ranking.batch import Judged
from stream_metrics.core.metrics.ranking.registry import parse
from stream_metrics.core.metrics.ranking.relevance import judge_ids
from stream_metrics.core.metrics.ranking.scoring import score
from stream_metrics.lab.evaluation.hpo import HumanPhenotypeOntology
from stream_metrics.lab.metrics.ontology import nearest, with_similarities


class Letters:
    """Terms are words of one length; their similarity is the share of equal letters."""

    formulas = frozenset({"lin", "far", "nan"})
    unbounded = frozenset({"far", "nan"})

    def similarity(self, expected: str, retrieved: str, formula: str) -> float:
        """Positions with equal letters ÷ letters; with ``far``, ten times that."""
        if formula == "nan":
            return float("nan")
        same = sum(a == b for a, b in zip(expected, retrieved, strict=True)) / len(expected)
        return 10 * same if formula == "far" else same


class OutOfRange(Letters):
    """Declares values in [0, 1] and returns 1.5."""

    unbounded = frozenset()

    def similarity(self, expected: str, retrieved: str, formula: str) -> float:
        """Return a value out of range."""
        return 1.5


def max_ont_sim(name: str, retrieved: list[str], expected: list[str]) -> float:
    """Our score of one ranking; NaN where undefined."""
    metric = parse(name)
    row = with_similarities(
        judge_ids(retrieved, dict.fromkeys(expected, 1)),
        Letters(),
        expected,
        retrieved,
        {str(metric.option("formula")): metric.k},
    )
    return float(score([row], [metric]).values[0, 0])


def test_the_nearest_term_in_the_top_k_counts() -> None:
    """More ranks may add a nearer term; an exact match is 1 for every formula."""
    retrieved = ["abxx", "abcx", "abcd"]

    found = [max_ont_sim(f"max_ont_sim@{k}", retrieved, ["abcd", "zzzz"]) for k in (1, 2, 3, 10)]

    assert found == [0.5, 0.75, 1.0, 1.0]
    assert max_ont_sim("max_ont_sim(formula=far)@1", ["abcd"], ["abcd"]) == 1.0


def test_without_retrieved_terms_it_is_0_and_without_expected_terms_undefined() -> None:
    """Other rankings in the batch do not matter."""
    assert max_ont_sim("max_ont_sim@5", [], ["abcd"]) == 0.0
    assert max_ont_sim("max_ont_sim@5", ["abcd"], []) != max_ont_sim("max_ont_sim@5", ["ab"], [])
    rows = [Judged([0.0], [], similarities={"lin": [0.25]}), Judged([0.0], [])]
    found = score(rows, [parse("max_ont_sim@5"), parse("max_ont_sim(formula=far)@5")]).values

    assert found[0, 0] == 0.25
    assert [value != value for value in found[:, 0]] == [False, True]
    assert [value != value for value in found[:, 1]] == [True, True]


def test_values_outside_of_the_range_are_refused() -> None:
    """The ontology may declare a formula without a range; NaN is always refused."""
    with pytest.raises(ValueError, match=r"of abcd and abxx is 1.5, which is not in \[0, 1\]"):
        nearest(OutOfRange(), ["abcd"], ["abxx"], "lin")
    with pytest.raises(ValueError, match="is nan"):
        nearest(Letters(), ["abcd"], ["abxx"], "nan")

    assert nearest(Letters(), ["abcd"], ["abxx"], "far") == [5.0]


def test_an_unknown_formula_is_refused() -> None:
    """The error lists the known ones."""
    with pytest.raises(ValueError, match="no formula 'graphic'; it has far, lin"):
        nearest(Letters(), ["abcd"], ["abxx"], "graphic")


def test_every_rank_needs_a_term() -> None:
    """A list of terms that is not as long as the ranking is an error."""
    with pytest.raises(ValueError, match="2 terms for a ranking of 1 results"):
        with_similarities(Judged([1.0], [1.0]), Letters(), ["ab"], ["ab", "cd"], {"lin": None})


# -- the Human Phenotype Ontology -------------------------------------------------------------

#   1 All ─ 118 Phenotypic abnormality ─┬─ 11 Nervous ─┬─ 21 Seizure
#                                       │              └─ 22 Ataxia
#                                       └─ 12 Heart ──── 23 Septal defect
TERMS = {
    1: ("All", []),
    118: ("Phenotypic abnormality", [1]),
    11: ("Nervous", [118]),
    12: ("Heart", [118]),
    21: ("Seizure", [11]),
    22: ("Ataxia", [11]),
    23: ("Septal defect", [12]),
}
DISEASES = {"OMIM:1": 21, "OMIM:2": 22, "OMIM:3": 23, "OMIM:4": 21, "ORPHA:1": 21, "DECIPHER:1": 23}


@pytest.fixture(scope="module")
def hpo(tmp_path_factory: pytest.TempPathFactory) -> HumanPhenotypeOntology:
    """pyhpo with a small ontology in the formats of the real one."""
    folder = tmp_path_factory.mktemp("hpo")
    write_ontology(folder)
    return HumanPhenotypeOntology(folder)


def write_ontology(folder: Path) -> None:
    """The files that pyhpo reads."""
    obo = ["format-version: 1.2", "data-version: hp/releases/2000-01-01", ""]
    for number, (name, parents) in TERMS.items():
        obo += ["[Term]", f"id: HP:{number:07}", f"name: {name}"]
        obo += [f"is_a: HP:{parent:07} ! {TERMS[parent][0]}" for parent in parents]
        obo.append("")
    (folder / "hp.obo").write_text("\n".join(obo))
    columns = "database_id disease_name qualifier hpo_id reference evidence onset frequency sex"
    lines = ["#description: made up", f"{columns} modifier aspect biocuration".replace(" ", "\t")]
    for disease, number in DISEASES.items():
        row = [disease, disease, "", f"HP:{number:07}", "", "PCS", "", "", "", "", "P", ""]
        lines.append("\t".join(row))
    (folder / "phenotype.hpoa").write_text("\n".join(lines) + "\n")
    (folder / "phenotype_to_genes.txt").write_text(
        "hpo_id\thpo_name\tncbi_gene_id\tgene_symbol\tdisease_id\n"
        "HP:0000021\tSeizure\t1\tAAA\tOMIM:1\n"
    )
    (folder / "genes_to_phenotype.txt").write_text(
        "ncbi_gene_id\tgene_symbol\thpo_id\thpo_name\tfrequency\tdisease_id\n"
        "1\tAAA\tHP:0000021\tSeizure\t-\tOMIM:1\n"
    )


def test_lin_similarity_by_hand(hpo: HumanPhenotypeOntology) -> None:
    """Seizure and ataxia share an ancestor with 3 of 4 diseases; seizure and septal defect share
    none."""
    shared, seizure, ataxia = -log(3 / 4), -log(2 / 4), -log(1 / 4)

    found = hpo.similarity("HP:0000021", "HP:0000022", "lin")

    assert found == pytest.approx(2 * shared / (seizure + ataxia))
    assert found == hpo.similarity("HP:0000022", "HP:0000021", "lin")
    assert hpo.similarity("HP:0000021", "HP:0000023", "lin") == 0.0


@pytest.mark.parametrize("term", ["HP:0099999", "MP:0000001", "seizure", ""])
def test_unknown_terms_are_not_similar(hpo: HumanPhenotypeOntology, term: str) -> None:
    """A term outside the ontology has similarity 0, but 1 to itself."""
    assert hpo.similarity("HP:0000021", term, "lin") == 0.0
    assert nearest(hpo, [term], [term], "lin") == [1.0]


@pytest.mark.parametrize("formula", sorted(HumanPhenotypeOntology.formulas))
def test_every_formula_keeps_its_range(hpo: HumanPhenotypeOntology, formula: str) -> None:
    """Over all pairs of terms, only formulas declared without a range leave [0, 1]."""
    terms = [f"HP:{number:07}" for number in TERMS]

    values = nearest(hpo, terms[:1], terms, formula)

    for expected in terms:
        values += nearest(hpo, [expected], terms, formula)
    assert min(values) >= 0.0
    assert formula in hpo.unbounded or max(values) == 1.0


def test_max_ont_sim_of_phenotypes(hpo: HumanPhenotypeOntology) -> None:
    """A sibling scores more than a term of another branch, and less than the term itself."""
    expected, retrieved = ["HP:0000021"], ["HP:0000023", "HP:0000022", "HP:0000021"]
    row = with_similarities(
        judge_ids(retrieved, {"HP:0000021": 1}), hpo, expected, retrieved, {"lin": None}
    )
    metrics = [parse(f"max_ont_sim@{k}") for k in (1, 2, 3)]

    first, second, third = score([row], metrics).values[0].tolist()

    assert 0.0 == first < second < third == 1.0
