"""Runs: settings, the room, labelling, the pipeline, model card, report and classifiers."""

from .. import _lazy

_HOME = {
    "card": "ModelCard Portable export_student load_student",
    "classifier": "PateClassifier PateMultilabelClassifier",
    "dependencies": "dependency_table inference_report learn_implications",
    "fit": "Groups NoGuaranteeWarning Queries Training",
    "labelling": "label_pool",
    "pipeline": "Voted run run_voted",
    "publication_plan": "plan_group_publication plan_publication",
    "publishing": "propose_publication publish_run",
    "repeats": "RepeatedFitWarning",
    "report.sweep": "draw_sweep noiseless_table sweep_table",
    "report.write": "write_report",
    "repricing": "reprice",
    "result": "RunResult",
    "room": "Room",
    "settings.files": (
        "config_as_dict default_config parse_config read_config with_absolute_paths write_config"
    ),
    "settings.mechanism": "LabelsConfig MechanismConfig SumConfig",
    "settings.party": "PartySettings parse_party read_party write_party",
    "settings.sections": (
        "BudgetConfig ClusterConfig DataConfig PartitionConfig PersonalConfig QueriesConfig ReportConfig "
        "RunConfig StudentConfig TeachersConfig"
    ),
    "sums": "Sums",
    "sweeps": "SweepRow SweepSetting sweep sweep_settings",
}
__all__, __getattr__, __dir__ = _lazy(__name__, _HOME)
