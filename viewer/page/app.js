// The start: which page it is.
if (data.isRun) new RunPage().open();
else new ListPage().open();
