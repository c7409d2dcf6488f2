// The start: which page it is.
if (data.isRun) new RunPage().open();
else if (data.isBatch) new BatchPage().open();
else new ListPage().open();
